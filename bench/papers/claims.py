"""What a claim of a paper is, and what is said of ours beside it. No simulation is run here."""

import dataclasses
import math
import statistics
import typing

REPRODUCED, DIRECTION, DISAGREES, FAILED = "reproduced", "direction only", "disagrees", "not measured"


@dataclasses.dataclass(frozen=True)
class Sim:
    """One `tactus sim` command. In `flags` {seed}, {requests} and the names of files (files.py) are filled in. `steps`:
    what every step took is kept too, under `steps_out` of the result, or of it the columns that are named. `also`:
    figures that a file of the run has and its result has not (simulations.ALSO), by name."""

    flags: str
    requests: int = 1000
    quick_requests: int = 300
    steps: bool | tuple = False
    also: tuple = ()


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The largest rate of `sim` at which `keeps(result)` holds, requests/s, to 3 %; 0 where none of the grid does."""

    sim: Sim
    keeps: typing.Callable[[dict], bool]
    says: str  # of `keeps`, as `tactus sim` would be told


@dataclasses.dataclass(frozen=True)
class AtLoad:
    """`sim` at so many times the requests/s that `probe` completes, whose requests are all there at once: of the same
    seed and under the same step times."""

    sim: Sim
    probe: Sim
    load: float


def sim_of(run):
    """The simulation whose result a run is."""
    return run if isinstance(run, Sim) else run.sim


# --- What is expected. `holds(x)`: reproduced; `direction(x)`: on the paper's side of no effect, by a tenth of the
# paper's effect at least. --

SHARE = 0.1


def points_alike(x, edge, neutral):
    return (x - neutral) * (edge - neutral) > 0 and abs(x - neutral) >= SHARE * abs(edge - neutral)


@dataclasses.dataclass(frozen=True)
class Near:
    """Within `within` of the paper's value: a share of it, absolute, or a share of the effect, which is its distance
    from `neutral`. `neutral` is what says
    neither: 1 of a ratio, 0 of a difference."""

    value: float
    within: float
    neutral: float | None = 1
    absolute: bool = False
    of_effect: bool = False

    def margin(self):
        return (
            self.within
            if self.absolute
            else self.within * abs(self.value - self.neutral if self.of_effect else self.value)
        )

    def aim(self):
        """The paper's value, and from where to where ours counts as reproduced."""
        return {"value": self.value, "low": self.value - self.margin(), "high": self.value + self.margin()}

    def holds(self, x):
        return abs(x - self.value) <= self.margin()

    def direction(self, x):
        return self.neutral is not None and points_alike(x, self.value, self.neutral)

    def difference(self, x):
        return f"{x - self.value:+.3g}" if self.absolute or self.value == 0 else f"{100 * (x / self.value - 1):+.0f} %"


@dataclasses.dataclass(frozen=True)
class Between:
    """From `low` to `high`, either may be None. `neutral` as of Near; None: outside there is no direction."""

    low: float | None
    high: float | None
    neutral: float | None = None

    def edge(self):
        """The end that is the paper's value: where one has to come to, from no effect."""
        if self.low is None or self.high is None:
            return self.high if self.low is None else self.low
        return self.low if self.neutral is None or self.low >= self.neutral else self.high

    def aim(self):
        return {"value": self.edge(), "low": self.low, "high": self.high}

    def holds(self, x):
        return (self.low is None or x >= self.low) and (self.high is None or x <= self.high)

    def direction(self, x):
        if self.neutral is None:
            return self.holds(x)
        return points_alike(x, self.edge(), self.neutral)

    def difference(self, x):
        edge = (
            self.low
            if self.low is not None and x < self.low
            else self.high
            if self.high is not None and x > self.high
            else None
        )
        return "within" if edge is None else f"{100 * (x / edge - 1):+.0f} %" if edge else f"{x - edge:+.3g}"


Expectation = Near | Between

# Of ratios, where a paper says which way and not how much: a hundredth counts as a way.
ABOVE_ONE, BELOW_ONE = Between(1.01, None, 1), Between(None, 0.99, 1)


@dataclasses.dataclass(frozen=True)
class Claim:
    id: str
    section: str  # of the paper
    says: str  # the claim, in our words
    paper: str  # its value, as text
    expects: Expectation
    runs: dict  # name -> Sim | Capacity | AtLoad
    value: typing.Callable[[dict], float]  # of a seed's results by name: the result object, of a Capacity the rate
    unit: str = ""
    seeds: tuple = (1, 2)
    why: str = ""  # where ours disagrees: the reason, as far as it is known
    derived: str = ""  # how `paper` follows from a rounded number of the paper, where the paper does not print it
    stands_in: str = ""  # what was used in place of what the paper has and does not publish
    model: str = ""  # deployment, a key of calibration.ERRORS: whose error the cost model has here
    perturb: bool = True  # whether the calibration repeats it with perturbed step times
    # The same runs with this project's own variant of the paper's algorithm in its place, under the same names; empty:
    # the claim has no such algorithm in it, or what ships is the paper's. The verdict is that of `runs`; this one's
    # stands beside it.
    shipped: dict = dataclasses.field(default_factory=dict)
    shipped_why: str = ""  # as `why`, where this one disagrees; empty: the same

    def __post_init__(self):
        if not self.runs or not self.seeds:
            raise ValueError(f"claim {self.id} measures nothing")
        if self.shipped and self.shipped.keys() != self.runs.keys():
            raise ValueError(f"claim {self.id}: what ships has other runs ({', '.join(self.shipped)}) than the paper's")

    def measured_runs(self, shipped):
        """What is run for the paper's algorithm, or for what ships."""
        return self.shipped if shipped else self.runs


def verdict(claim, value):
    """reproduced, direction only, disagrees; not measured for None or no number."""
    if value is None or not math.isfinite(value):
        return FAILED
    if claim.expects.holds(value):
        return REPRODUCED
    return DIRECTION if claim.expects.direction(value) else DISAGREES


def side(claim, value):
    """On which side of no effect a value is: 1, -1, or 0 where it is within a hundredth of none. Of a claim that has no
    such point, 1 where it holds, else -1."""
    neutral = claim.expects.neutral
    if neutral is None:
        return 1 if claim.expects.holds(value) else -1
    near = {"x": 0.01, "%": 1, "points": 1}.get(claim.unit, 0)
    return (value > neutral + near) - (value < neutral - near)


def measured(values):
    """Median, least and largest of the seeds' values; None where nothing is a number."""
    values = [v for v in values if v is not None and math.isfinite(v)]
    return (statistics.median(values), min(values), max(values)) if values else None


def check(claims):
    """Faults of a table of claims, as text; [] where there are none."""
    faults, seen = [], set()
    for c in claims:
        if c.id in seen:
            faults.append(f"{c.id}: the id is taken")
        seen.add(c.id)
        for name in ("id", "section", "says", "paper"):
            if not getattr(c, name).strip():
                faults.append(f"{c.id}: {name} is empty")
        if any(ch in c.id for ch in " |") or not c.id.isascii():
            faults.append(f"{c.id}: an id is typed on a command line")
        for name, run in [*c.runs.items(), *c.shipped.items()]:
            flags = sim_of(run).flags
            if not isinstance(run, Sim) and "--rate" in flags:
                faults.append(f"{c.id}, {name}: its rate is found, not stated")
            if "--json" in flags:
                faults.append(f"{c.id}, {name}: --json is added to every command")
        edges = [c.expects.value] if isinstance(c.expects, Near) else [c.expects.low, c.expects.high]
        if all(e is None for e in edges):
            faults.append(f"{c.id}: it expects nothing")
        if isinstance(c.expects, Near) and c.expects.neutral is not None and c.expects.holds(c.expects.neutral):
            faults.append(f"{c.id}: no effect at all would be reproduced")
        if (
            isinstance(c.expects, Between)
            and c.expects.neutral is not None
            and c.expects.low is None
            and (c.expects.high or 0) > c.expects.neutral
        ):
            faults.append(f"{c.id}: no effect at all would be reproduced")
    return faults
