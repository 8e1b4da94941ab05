"use strict";
// The model of the question as a function, and sliders for its inputs. Nothing is loaded.
(() => {
const {exp, log, sqrt, pow, log1p, expm1, abs, floor, ceil, sign, tanh, max, min} = Math;

// Round half to even.
const even = (x) => { const near = Math.round(x); return abs(x % 1) === 0.5 && near % 2 ? near - 1 : near; };

// Logarithm of the gamma function of a positive number (Lanczos, g = 7).
const GAMMA = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
  -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
function lgamma(x) {
  const t = x + 6.5;
  const sum = GAMMA.reduce((total, c, i) => total + c / (x + i), 0.99999999999980993);
  return 0.5 * log(2 * Math.PI) + (x - 0.5) * log(t) - t + log(sum);
}

// Dies manufactured per good die (hwopt/trace/yield_primitive.py).
function made(fixed, open, spares, alpha) {
  const dead = open / (alpha + fixed + open);
  let total = 0;
  let term = dead > 0 ? exp(lgamma(spares + 1 + alpha) - lgamma(alpha) - lgamma(spares + 2) + (spares + 1) * log(dead)) : 0;
  for (let j = spares + 1; term > 1e-18 * total; j++) {
    total += term;
    term *= dead * (j + alpha) / (j + 1);
  }
  return pow(1 + fixed / alpha, alpha) / (1 - pow(1 - dead, alpha) * total);
}

const models = [
/* models */
];
const machines = /* machines */;
const LABELS = {tp: "tensor parallel (tp)", pp: "pipeline stages (pp)", dp: "data parallel (dp)", cp: "context parallel (cp)",
  ep: "expert parallel (ep)", zero: "ZeRO stage", recompute: "recomputation", groups: "tp groups of a domain"};
const LIMITS = {clock: "asks for a clock {over} above what cooling or the power cap sustains",
  reticle: "has a die {over} larger than the reticle", shoreline: "has interfaces {over} longer than the edges of its dies",
  package: "fills its package {over} beyond its area"};
const SHARES = ["mfu", "hfu", "goodput"];
const OPTIMUM = {proved: "certified optimum", infeasible: "nearest design", evaluated: "stated design"};
const SCALES = {"USD/J": [1 / 3.6e6, "$/kWh"], "USD/B": [1e-9, "$/GB"], "1/s": [0.01 / 31557600, "%/year"],
  "1/(m2.s)": [0, "times today's"]};
const TOLERANCE = 1e-6;  // relative violation that still counts as feasible

// Text of a number in a customary unit.
const formats = {};
const digits = (x, n) => (formats[n] ??= new Intl.NumberFormat("en-US", {maximumSignificantDigits: n})).format(x);
const short = (x, n) => x !== 0 && (abs(x) < 1e-4 || abs(x) >= 1e15) ? x.toExponential(n - 1) : digits(x, n);
const TIMES = [[31557600, "years"], [86400, "days"], [3600, "h"], [60, "min"]];
const SIZES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "u"], [1e-9, "n"]];
const PREFIXED = ["B", "B/s", "FLOP/s", "Hz", "W", "J", "token/s", "J/token"];
const IMPLIED = ["chip", "sequence", "of nominal", "stack", "die", "prompt"];  // by the name of the number
function pretty(x, unit, n = 4) {
  if (IMPLIED.includes(unit)) unit = "";
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "-" : "unbounded";
  if (unit === "%" || unit === "fraction") return short(100 * x, n) + " %";
  if (unit === "m2" && x < 0.01) return short(1e6 * x, n) + " mm2";
  if (unit === "USD/token") return short(1e6 * x, n) + " $/M tokens";
  if (unit === "USD") {
    const size = abs(x) >= 1e9 ? 1e9 : abs(x) >= 1e6 ? 1e6 : 1;
    return short(x / size, size === 1 && abs(x) >= 1e5 ? 6 : n) + {1e9: " B$", 1e6: " M$", 1: " $"}[size];
  }
  if (unit === "s" && abs(x) >= 120) {
    const [size, name] = TIMES.find(([size]) => abs(x) >= 2 * size);
    return short(x / size, n) + " " + name;
  }
  if (x && (PREFIXED.includes(unit) || (unit === "s" && abs(x) < 1))) {
    const [size, prefix] = SIZES.find(([size]) => abs(x) >= size) ?? SIZES.at(-1);
    return short(x / size, n) + " " + prefix + unit;
  }
  return (Number.isInteger(x) ? digits(x, 15) : short(x, n)) + (unit ? " " + unit : "");
}
const percent = (x) => (abs(x) >= 1 ? digits(100 * x, max(3, ceil(log(100 * abs(x)) / Math.LN10))) : short(100 * x, 3)) + " %";

// Text of a control's value.
function shown(control, x) {
  if (control.words.length) return control.words[x - 1] ?? String(x);
  if (control.group !== "assumption") return pretty(x, control.unit);
  if (!control.unit && control.upper <= 1) return pretty(x, "%", 3);
  const [size, unit] = control.name.endsWith("requests_per_s") ? [1, "a second"] : SCALES[control.unit] ?? [null, ""];
  return size === null ? pretty(x, control.unit, 3) : short(x / (size || control.value), 3) + " " + unit;
}

// Whether a relation between integers holds; one that names a value not yet known does.
const product = (names, v) => names.reduce((total, name) => total * v[name], 1);
const size = (rule, v) => rule.coefficient * product(rule.factors, v) / product(rule.over, v);
const namesOf = (rule) => [...(rule.factors ?? rule.divisor ?? rule.one), ...(rule.over ?? rule.dividend ?? rule.other)];
function holds(rule, v) {
  if (rule.when && !(v[rule.when[0]] >= rule.when[1])) return true;
  if (namesOf(rule).some((name) => v[name] === undefined)) return true;
  if (rule.divisor) return (rule.multiple * product(rule.dividend, v)) % (rule.constant * product(rule.divisor, v)) === 0;
  if (rule.one) {
    const one = product(rule.one, v), other = product(rule.other, v);
    return one % other === 0 || other % one === 0;
  }
  const value = size(rule, v);
  return value >= rule.low * (1 - 1e-9) && value <= rule.high * (1 + 1e-9);
}

// A broken relation in words.
function ruleWords(machine, rule, v) {
  const label = (name) => machine.labels[name] ?? name.replaceAll("_", " ");
  const times = (names) => names.map(label).join(" x ");
  const amount = (x) => digits(x, 6);
  const when = rule.when ? `where ${label(rule.when[0])} is more than ${rule.when[1] - 1}, ` : "";
  if (rule.divisor) {
    const divisor = product(rule.divisor, v) * rule.constant, dividend = product(rule.dividend, v) * rule.multiple;
    const by = [times(rule.divisor), ...(rule.constant > 1 || !rule.divisor.length ? [rule.constant] : [])].filter(Boolean).join(" x ");
    const of = [times(rule.dividend), ...(rule.multiple > 1 || !rule.dividend.length ? [rule.multiple] : [])].filter(Boolean).join(" x ");
    return `${when}${of} (${amount(dividend)}) must be a multiple of ${by} (${amount(divisor)})`;
  }
  if (rule.one) return `${times(rule.one)} must be a multiple of ${times(rule.other)}, or the other way round`;
  const what = rule.name ? label(rule.name) : times(rule.factors) + (rule.over.length ? ` / (${times(rule.over)})` : "");
  const value = size(rule, v);
  const end = value < rule.low ? `at least ${amount(rule.low)}` : `at most ${amount(rule.high)}`;
  const named = machine.words[rule.factors[0]] ?? [];
  if (rule.factors.length === 1 && !rule.over.length && named.length) {
    return `${when}${what} must be ${value > rule.high ? named.slice(0, rule.high).join(" or ") : named.slice(rule.low - 1).join(" or ")}`;
  }
  return `${when}${what} (${amount(value)}) must be ${rule.low === rule.high ? amount(rule.low) : end}`;
}

// Integers that can be built, nearest to what is wanted: those that follow from others, or have many values, come last.
const TRIES = 4096;
function follows(machine) {
  return machine.controls.flatMap((control) => {
    const rule = machine.rules.find((each) => each.name === control.name && each.follows);
    if (!rule && !(control.integer && !control.values.length && control.upper > 256)) return [];
    const name = rule ? rule.follows : control.name;
    return [{name, rule, control, rules: machine.rules.filter((each) => each !== rule && namesOf(each).includes(name))}];
  });
}
function settled(machine, wanted) {
  const v = {...machine.point};
  for (const control of machine.controls) v[control.name] = wanted[control.name];
  for (const {name} of machine.follows) v[name] = undefined;
  for (const {name, rule, control, rules} of machine.follows) {
    v[name] = 1;
    const each = rule ? size(rule, v) : 1;
    const first = max(1, ceil(control.lower / each * (1 - 1e-9))), last = floor(control.upper / each * (1 + 1e-9));
    const near = max(1, min(max(Math.round(wanted[control.name] / each), first), last));
    const fits = (x) => { v[name] = x; return x >= first && x <= last && rules.every((rule) => holds(rule, v)); };
    let far = 0;
    while (far < TRIES && !fits(near + far) && !fits(near - far) && (near + far <= last || near - far >= first)) far++;
    if (far === TRIES || (near + far > last && near - far < first)) v[name] = near;
    if (rule) v[rule.name] = size(rule, v);
  }
  return v;
}

const inputs = (machine, v) => [...machine.inputs.map((name) => v[name]),
  ...machine.numbers.map(([number, name]) => name ? number * (v[name] / machine.start[name]) : number)];
const run = (machine, v) => models[machine.program](inputs(machine, v));
function evaluated(machine, wanted) {
  const v = settled(machine, wanted), out = run(machine, v);
  return {v, out, broken: machine.rules.filter((rule) => !holds(rule, v))};
}

// What is violated, by how much, in words.
function violations(machine, {v, out, broken}) {
  const found = broken.map((rule) => `Cannot be built: ${ruleWords(machine, rule, v)}.`);
  machine.outputs.forEach(({group, name, label}, i) => {
    if (group !== "constraint" || !(out[i] > TOLERANCE)) return;
    const endless = out[i] === Infinity, over = endless ? "without end" : percent(expm1(out[i]));
    const budget = machine.outputs.findIndex((each) => each.group === "budget" && each.name === name);
    if (budget < 0) found.push(label[0].toUpperCase() + label.slice(1).replace("{over}", over) + ".");
    else found.push(`${machine.labels[name]} exceeded ${endless ? over : "by " + over}: ${pretty(out[budget], machine.outputs[budget].unit)} of ` +
      `${pretty(v[name], machine.outputs[budget].unit)}.`);
  });
  return found;
}

// The page.
const root = document.getElementById("live");
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== false) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const KINDS = {size: "Size", plan: "Plan", chip: "Hardware", silicon: "Hardware", memory: "Hardware", network: "Hardware",
  facility: "Hardware", workload: "Workload", assumption: "Assumptions", limit: "Limits"};
for (const machine of machines) {
  machine.outputs = machine.outputs.map(([group, name, unit, label]) => {
    const [last] = name.split(".").slice(-1), part = name.replace(/_(s|bytes)$/, "");
    if (group === "constraint") {
      label ||= LIMITS[last] ?? `exceeds its ${last.replaceAll("_", " ")} by {over}`;
      if (last !== name) label = `${name.split(".")[0]}: ${label}`;
    }
    return {group, name, label, unit: SHARES.includes(name) ? "%" : unit, shade: `var(--part-${part},var(--money-${part},var(--other)))`};
  });
  machine.optimum = OPTIMUM[machine.outcome] ?? "best design found";
  for (const control of machine.controls) control.label = LABELS[control.name.replace(/^serve_|^prefill_/, "")] ?? control.label;
  machine.rules = machine.rules.map((rule) => rule.then ? {...rule.then, when: [rule.name, rule.least]} : rule)
    .filter((rule) => rule.low !== null && typeof rule.low !== "object" && typeof (rule.high ?? 0) !== "object");
  machine.byName = Object.fromEntries(machine.controls.map((each) => [each.name, each]));
  machine.labels = Object.fromEntries(machine.controls.map((each) => [each.name, each.label]));
  machine.words = Object.fromEntries(machine.controls.map((each) => [each.name, each.words]));
  machine.start = Object.fromEntries(machine.controls.map((each) => [each.name, each.value]));
  machine.follows = follows(machine);
  machine.best = evaluated(machine, machine.start);
}
let machine = machines[0], wanted = {...machine.start}, present = null, parts = null;

// Values at which a slider stops: all integers of a short range, else steps of equal ratio.
function stops(control) {
  const {lower, upper, integer, values} = control;
  if (values.length) return values;
  const low = integer ? ceil(lower * (1 - 1e-9)) : lower, high = integer ? floor(upper * (1 + 1e-9)) : upper;
  if (integer && high - low <= 256) return Array.from({length: high - low + 1}, (_, i) => low + i);
  const found = Array.from({length: 201}, (_, i) => i === 0 ? low : i === 200 ? high : low * pow(high / low, i / 200));
  return [...new Set([...(integer ? found.map(Math.round) : found), control.value])].sort((a, b) => a - b);
}

function slider(control) {
  const id = "live-" + control.name;
  const input = make("input", {type: "range", id, min: 0, step: 1});
  const value = make("output", {for: id});
  const row = make("div", {class: "control"}, make("label", {for: id}, control.label), value, input);
  const part = {row, control, stops: stops(control)};
  input.addEventListener("input", () => {
    wanted[control.name] = part.stops[input.value];
    draw();
  });
  part.draw = () => {
    const x = wanted[control.name], now = present.v[control.name] ?? x;
    if (!part.stops.includes(x)) part.stops = [...part.stops, x].sort((a, b) => a - b);
    input.max = part.stops.length - 1;
    input.value = part.stops.indexOf(x);
    value.textContent = shown(control, now);
    input.setAttribute("aria-valuetext", value.textContent);
    row.classList.toggle("moved", now !== control.value);
  };
  return part;
}

function build() {
  const one = (tag, name, ...children) => (parts[name] = make(tag, {class: name}, ...children));
  parts = {controls: [], rows: [], bars: [], limits: []};
  const choice = machines.length > 1 ? [make("label", {class: "machine"}, "Machine ", make("select", {id: "live-machine"},
    ...machines.map((each, i) => make("option", {value: i, ...(each === machine ? {selected: ""} : {})}, each.name))))] : [];
  const goal = machine.outputs[0];
  const sides = make("div", {class: "sides"},
    make("div", {}, make("span", {class: "said"}, `present setting, ${goal.label}`), one("b", "now"), one("span", "change")),
    make("div", {}, make("span", {class: "said"}, `${machine.optimum}, ${goal.label}`), make("b", {}, pretty(machine.best.out[0], goal.unit))));
  const head = make("div", {class: "head"}, ...choice, sides, make("div", {role: "status"}, one("p", "verdict"), one("ul", "why")));

  const groups = new Map();
  for (const control of machine.controls) {
    if (control.lower === control.upper) continue;
    const part = slider(control), kind = KINDS[control.group] ?? "Plan";
    if (!groups.has(kind)) groups.set(kind, []);
    groups.get(kind).push(part.row);
    parts.controls.push(part);
  }
  const order = [...new Set(Object.values(KINDS))].filter((kind) => groups.has(kind));
  const fixed = machine.controls.filter((each) => each.lower === each.upper && !(each.value === 1 && !each.words.length));
  const controls = make("div", {class: "controls"},
    ...order.map((kind) => make("fieldset", {}, make("legend", {}, kind), ...groups.get(kind))),
    make("p", {class: "note"}, "Fixed: " + (fixed.map((each) => `${each.label} ${shown(each, each.value)}`).join(", ") || "nothing") + "."));

  const table = (label, heads, rows) => make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": label}, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", {scope: "col", class: i ? "" : "words"}, head)))),
    make("tbody", {}, ...rows)));
  const line = (name, i, unit, share) => {
    const cells = [make("td"), make("td"), make("td")];
    const row = make("tr", {}, make("th", {scope: "row", class: "words"}, ...name), ...cells);
    parts.rows.push({row, cells, i, unit, share});
    return row;
  };
  const heads = ["", "present", machine.optimum.split(" ").pop(), "change"];
  const metrics = machine.outputs.map((each, i) => [each, i]).filter(([each]) => each.group === "metric");
  const results = make("div", {class: "results"}, make("h3", {}, "Results"),
    table("Results", ["metric", ...heads.slice(1)], metrics.map(([each, i]) => line([each.label], i, each.unit))));

  const budgets = machine.outputs.map((each, i) => [each, i]).filter(([each]) => each.group === "budget");
  if (budgets.length) results.append(make("h3", {}, "Budgets at this setting"), make("ul", {class: "budgets"}, ...budgets.map(([each, i]) => {
    const said = make("span"), bar = make("span", {class: "used"}), mark = make("i");
    parts.limits.push({each, i, said, bar, mark});
    return make("li", {}, make("div", {class: "said"}, make("strong", {}, machine.labels[each.name]), said),
      make("div", {class: "bar", "aria-hidden": "true"}, bar, mark));
  })));
  const titles = {breakdown: "Step time", spending: "Cost", memory: "Memory of the fullest chip"};
  for (const group of new Set(machine.outputs.map((each) => each.group).filter((each) => /breakdown|spending|memory/.test(each)))) {
    const some = machine.outputs.map((each, i) => [each, i]).filter(([each, i]) => each.group === group);
    const stacks = [["present", null], [heads[2], machine.best.out]].map(([name, out]) => {
      const cuts = some.map(([each]) => make("span", {style: `background:${each.shade}`, title: each.label}));
      parts.bars.push({some, cuts, out});
      return make("div", {class: "row", "aria-hidden": "true"}, make("small", {}, name), make("div", {class: "stack"}, ...cuts));
    });
    const [what, unit] = [group.split(" ").pop(), some[0][0].unit];
    const title = `${titles[what]}${group === what ? "" : `, ${group.split(" ")[0]}`}`;
    results.append(make("h3", {}, title), ...stacks, table(title, ["part", ...heads.slice(1)], some.map(([each, i]) =>
      line([make("i", {class: "swatch", style: `background:${each.shade}`}), each.label], i, unit, unit ? null : some.map(([, j]) => j)))));
  }
  const reset = make("button", {type: "button"}, "Reset to the " + machine.optimum);
  reset.addEventListener("click", () => { wanted = {...machine.start}; draw(); });
  const foot = make("div", {class: "foot"}, reset, one("a", "link", "Link to this setting"),
    make("p", {class: "note"}, "The same setting by hwopt, with every number of an answer:"), one("pre", "command"));
  parts.command.tabIndex = 0;
  root.replaceChildren(head, make("div", {class: "both"}, controls, results), foot);
  document.getElementById("live-machine")?.addEventListener("change", (event) => {
    machine = machines[event.target.value];
    wanted = {...machine.start};
    build();
    document.getElementById("live-machine").focus();
  });
  draw();
}

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
function setting() {
  const moved = machine.controls.map((each) => [each.name, present.v[each.name] ?? wanted[each.name]])
    .filter(([name, x]) => x !== machine.start[name]);
  const pairs = machines.length > 1 ? [["machine", machine.name], ...moved] : moved;
  return pairs.map(([name, x]) => `${encodeURIComponent(name).replaceAll("'", "%27")}=${encodeURIComponent(x).replaceAll("'", "%27")}`).join("&");
}

function draw(link = true) {
  present = evaluated(machine, wanted);
  const {v, out} = present, best = machine.best.out, goal = machine.outputs[0];
  const change = (i) => abs(out[i] - best[i]) <= 1e-9 * abs(best[i]) ? "" : Number.isFinite(out[i] / best[i]) ? (out[i] > best[i] ? "+" : "") + percent(out[i] / best[i] - 1) : "";
  parts.now.textContent = pretty(out[0], goal.unit);
  parts.change.textContent = change(0);
  const why = violations(machine, present);
  parts.verdict.textContent = why.length ? "Infeasible:" : "Feasible: every budget and limit holds.";
  parts.verdict.classList.toggle("warn", why.length > 0);
  parts.why.replaceChildren(...why.map((words) => make("li", {}, words)));
  for (const part of parts.controls) part.draw();
  for (const {row, cells, i, unit, share} of parts.rows) {
    const whole = share && share.reduce((total, j) => total + out[j], 0), before = share && share.reduce((total, j) => total + best[j], 0);
    cells[0].textContent = share ? percent(out[i] / whole) : pretty(out[i], unit);
    cells[1].textContent = share ? percent(best[i] / before) : pretty(best[i], unit);
    cells[2].textContent = share ? "" : change(i);
    row.hidden = Number.isNaN(out[i]) || (out[i] === 0 && best[i] === 0);
  }
  for (const {each, i, said, bar, mark} of parts.limits) {
    const used = out[i] / v[each.name], longest = max(1, min(used, 1.5));
    said.textContent = `${pretty(out[i], each.unit)} of ${pretty(v[each.name], each.unit)}, ${Number.isFinite(used) ? percent(used) : "-"}`;
    bar.style.width = `${100 * min(used, longest) / longest}%`;
    bar.className = used > 1 + TOLERANCE ? "over" : "used";
    mark.style.left = `${100 / longest}%`;
  }
  for (const {some, cuts, out: of} of parts.bars) {
    const values = some.map(([, i]) => (of ?? out)[i]), total = values.reduce((a, b) => a + b, 0);
    cuts.forEach((cut, k) => { cut.style.width = `${100 * values[k] / total}%`; cut.hidden = !(values[k] > 0.001 * total); });
  }
  const hash = "#" + setting();
  parts.link.href = hash;
  const here = location.protocol === "file:" ? decodeURIComponent(location.pathname) : location.pathname.split("/").pop();
  parts.command.textContent = `hwopt estimate --design ${quoted(here + hash)}`;
  if (link && location.hash !== hash && (location.hash || hash !== "#")) history.replaceState(null, "", hash);
}

// The setting that a link states; values outside the range of a slider are moved to its end.
function read() {
  const stated = new URLSearchParams(location.hash.slice(1));
  machine = machines.find((each) => each.name === stated.get("machine")) ?? machines[0];
  wanted = {...machine.start};
  for (const [name, text] of stated) {
    const control = machine.byName[name], x = Number(text);
    if (control && text.trim() && Number.isFinite(x)) {
      wanted[name] = min(max(control.integer ? Math.round(x) : x, control.lower), control.upper);
    }
  }
  build();
}
window.addEventListener("hashchange", read);
window.hwopt = {machines, inputs, run, draw, present: () => present, evaluate: (index, values) => evaluated(machines[index], {...machines[index].start, ...values}), violations};
read();
})();
