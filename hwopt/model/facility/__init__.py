"""Model of the facility around the chips: racks, power, cost, deployment options, reliability and preemption."""
