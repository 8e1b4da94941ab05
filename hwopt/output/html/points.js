"use strict";
// What a point of a chart says, beside it: on hover, touch and focus; arrow keys go from point to point. Without this
// script the titles of the points say the same.
for (const figure of document.querySelectorAll("figure.points")) {
  const points = [...figure.querySelectorAll(".point")];
  const chart = figure.querySelector("svg");
  const tip = figure.querySelector(".tip");
  const marks = new Map();
  for (const point of points) {
    const title = point.querySelector("title");
    marks.set(point, title.textContent);
    point.setAttribute("aria-label", title.textContent.replaceAll("\n", ", "));
    title.remove();
  }
  const hide = () => {
    tip.hidden = true;
    for (const point of points) point.classList.remove("shown");
  };
  const middle = (point) => {
    const box = point.firstElementChild.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const show = (point) => {
    hide();
    point.classList.add("shown");
    tip.textContent = marks.get(point);
    tip.hidden = false;
    const frame = figure.getBoundingClientRect();
    const [x, y] = middle(point);
    const left = x - frame.x + 14, top = y - frame.y - tip.offsetHeight - 10;
    tip.style.left = Math.max(0, Math.min(left, frame.width - tip.offsetWidth)) + "px";
    tip.style.top = (top < 0 ? y - frame.y + 16 : top) + "px";
  };
  const nearest = (event) => {
    let best = null, least = 28 * 28;
    for (const point of points) {
      const [x, y] = middle(point);
      const far = (x - event.clientX) ** 2 + (y - event.clientY) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  };
  const follow = (event) => {
    const point = nearest(event);
    if (point) show(point); else hide();
  };
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  points.forEach((point, place) => {
    point.addEventListener("focus", () => show(point));
    point.addEventListener("blur", hide);
    point.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = points[place + (step ?? 0)];
      if (event.key === "Escape") hide();
      if (!step || !next) return;
      event.preventDefault();
      point.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  });
}
