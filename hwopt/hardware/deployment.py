"""Cost and lead time of a place for a machine: tariffs, rents of halls, lead times, redundancy, power feeds."""

import equinox as eqx

from hwopt.quantity import quantity, ratio
from hwopt.types import Scalar


class Deployment(eqx.Module):
    """A market in which machines are built, housed or rented."""

    demand_usd_per_w_s: Scalar = quantity("USD/(W.s)", "of the highest power drawn, by the month", key="demand_charge")
    demand_floor: Scalar = ratio("least share of the contracted power that is billed", most=1.0)
    tariff_load_factor: Scalar = ratio("mean over highest power of customers whose mean price a site states", most=1.0)
    colocation_usd_per_w_s: Scalar = quantity(
        "USD/(W.s)", "of IT power committed, with cooling and UPS, electricity apart", key="colocation_rent"
    )
    retrofit_usd_per_w: Scalar = quantity("USD/W", "a hall with power made fit for liquid", key="retrofit")
    idle_power: Scalar = ratio("power of a machine without work over that at work", most=1.0)
    two_n_price: Scalar = ratio("power and cooling twice over as much as is needed, price over that of one spare")
    n_price: Scalar = ratio("without any spare, price over that of one spare")
    n_failures_per_s: Scalar = quantity("1/s", "outages of a hall without spares")
    n_1_failures_per_s: Scalar = quantity("1/s", "of one that is maintained while it runs", key="n_1_failures")
    two_n_failures_per_s: Scalar = quantity("1/s", "of one with two ways from the grid to the rack")
    outage_s: Scalar = quantity("s", "an outage until the hall is up again")
    n_maintenance: Scalar = ratio("share of the year in which a hall without spares stands still for upkeep", most=1.0)
    grid_s: Scalar = quantity("s", "from request to energised connection")
    transformer_s: Scalar = quantity("s", "power transformers, from order to site")
    switchgear_s: Scalar = quantity("s", "switchgear of medium voltage")
    generators_s: Scalar = quantity("s", "standby generators")
    construction_s: Scalar = quantity("s", "a hall of some 30 MW, from design to handing over")
    retrofit_s: Scalar = quantity("s", "a hall from air to liquid", key="retrofit_time")
    chips_s: Scalar = quantity("s", "servers, from order to running")
    colocation_s: Scalar = quantity("s", "space in somebody's hall", key="colocation_time")
    cloud_s: Scalar = quantity("s", "a cluster in a cloud")
    commissioning_s: Scalar = quantity("s", "tests under load once everything is there")
    medium_volts: Scalar = quantity("V", "from the substation to the hall", key="medium_voltage")
    hall_volts: Scalar = quantity("V", "from transformer to rack", key="hall_voltage")
    bus_volts: Scalar = quantity("V", "busbar of a rack today", key="bus_voltage")
    high_bus_volts: Scalar = quantity("V", "the one that replaces it in racks of a megawatt", key="high_bus_voltage")
    bus_density_a_per_m2: Scalar = quantity("A/m2", "current in copper of a busbar", key="bus_density")
    bus_length_m: Scalar = quantity("m", "of a rack, one way", key="bus_length")
    high_bus_saves: Scalar = ratio("share of power at the meter that fewer conversions save", most=1.0)
