"""The output of bench/papers: a table for a terminal, the same in Markdown, and the list of claims with their
commands."""

import collections
import textwrap

import picture
from claims import DIRECTION, DISAGREES, FAILED, REPRODUCED
from simulations import commands_of

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
ORDER = (REPRODUCED, DIRECTION, DISAGREES, FAILED)
# Columns of our results. A row with a shipped variant has the same columns for it under `shipped`.
OURS = (
    "ours",
    "least",
    "largest",
    "difference",
    "verdict",
    "tie",
    "other_with",
    "why",
    "variants",
    "what_ifs",
    "turns",
    "commands",
    "errors",
    "measured",
)
PUBLISHED, SHIPPED = "as published", "as shipped"


def number(x, unit=""):
    if x is None:
        return "-"
    text = f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"
    return f"{text} {unit}" if unit and unit != "x" else text


def shipped(row):
    """The row of the shipped variant; None if it is the paper's algorithm."""
    return row | row["shipped"] if row.get("shipped") else None


def both(rows):
    """(label, row) of everything measured: the paper's algorithm, then the shipped one."""
    return [(PUBLISHED if shipped(r) else "", r) for r in rows] + [(SHIPPED, shipped(r)) for r in rows if shipped(r)]


def ours(row):
    spread = (
        ""
        if row["least"] is None or row["least"] == row["largest"]
        else f" ({number(row['least'])} to {number(row['largest'])})"
    )
    return number(row["ours"], row["unit"]) + spread


def range_text(row):
    """Least and largest value with the perturbed cost models, and the values of other engines."""
    if not row["variants"]:
        return ""
    values = [v for v in row["variants"].values() if v is not None]
    return (
        f"{number(min(values))} to {number(max(values))}"
        + (f"; turns under {', '.join(row['turns'])}" if row["turns"] else "")
        + "".join(f"; {number(value)} with {name}" for name, value in row.get("what_ifs", {}).items())
    )


def paper_value(row):
    return row["paper_value"] + (f" (derived: {row['derived']})" if row.get("derived") else "")


def verdict_text(row):
    """The verdict, whether it is a tie, and the perturbed step times that would change it."""
    other = ", ".join(row.get("other_with", []))
    return (
        row["verdict"]
        + (", a tie: within 1 %" if row.get("tie") else "")
        + (f"; {'not' if row['verdict'] == REPRODUCED else REPRODUCED} with {other}" if other else "")
    )


def within_tenth(row):
    """Whether ours is within 10 % of a figure of the paper: yes, no, or - if the paper has a bound instead of a
    figure."""
    aim, ours = row["aim"], row["ours"]
    if ours is None or None in (aim["low"], aim["high"]) or not aim["low"] < aim["value"] < aim["high"]:
        return "-"
    return "yes" if abs(ours - aim["value"]) <= (0.1 + 1e-9) * abs(aim["value"]) else "no"


def counts(rows):
    found = collections.Counter(row["verdict"] for row in rows)
    return ", ".join(f"{found[name]} {name}" for name in ORDER if found[name])


def sides(rows):
    """label -> rows to count: one side, or as published and as shipped if the two differ."""
    if not any(shipped(r) for r in rows):
        return {"": rows}
    return {PUBLISHED: rows, SHIPPED: [shipped(r) or r for r in rows]}


def by_paper(results):
    """(run, name, title, rows) of every paper that was run."""
    for result in results:
        for name, title in result["papers"].items():
            if rows := [row for row in result["rows"] if row["paper"] == name]:
                yield result, name, title, rows


def plain(results):
    lines = []
    for _, _, title, rows in by_paper(results):
        lines.append(title)
        lines += [
            f"  {len(mine)} claims{label and ', ' + label}: {counts(mine)}" for label, mine in sides(rows).items()
        ] + [""]
        for r in rows:
            lines.append(
                f"  {r['id']:<26} paper {paper_value(r):<22} ours {ours(r):<26} {r['difference']:<9} {verdict_text(r)}"
            )
            if other := shipped(r):
                label = f"{SHIPPED} {ours(other)}"
                lines.append(f"  {'':<55} {label:<31} {other['difference']:<9} {verdict_text(other)}")
            lines += textwrap.wrap(
                f"{r['claim']} ({r['section']})", 130, initial_indent="      ", subsequent_indent="      "
            )
            for label, text in (
                ("why", r["why"]),
                ("stands in", r["stands_in"]),
                ("with wrong step times", range_text(r)),
                *(("error", e[:600]) for e in r["errors"]),
                *(
                    (
                        (f"{SHIPPED}, why", other["why"] if other["why"] != r["why"] else ""),
                        (f"{SHIPPED}, with wrong step times", range_text(other)),
                        *((f"{SHIPPED}, error", e[:600]) for e in other["errors"]),
                    )
                    if other
                    else ()
                ),
            ):
                if text:
                    lines += textwrap.wrap(f"{label}: {text}", 130, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    return "\n".join(lines) + "\n"


def reproduced_if(row):
    """The range in which ours counts as reproduced."""
    low, high = row["aim"]["low"], row["aim"]["high"]
    unit = row["unit"]
    if low is None or high is None:
        return f"at most {number(high, unit)}" if low is None else f"at least {number(low, unit)}"
    return f"{number(low)} to {number(high, unit)}"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def pictures(results, folder):
    """The columns of the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for _, name, title, mine in by_paper(results):
        two = any(shipped(r) for r in mine)
        (folder / f"{name}.svg").write_text(picture.svg(f"{title}, {PUBLISHED}" if two else title, mine))


def table_heads(rows):
    """The heads of the result columns."""
    more = ["difference", "within 10 %", "verdict"] + (
        ["with wrong step times"] if any(r["variants"] for r in rows) else []
    )
    labels = [PUBLISHED, SHIPPED] if any(shipped(r) for r in rows) else ["ours"]
    return [head for label in labels for head in (label, *more)]


def figures(row, heads):
    """A row's cells under these heads. A claim without a variant has the same cells twice."""
    wrong = "with wrong step times" in heads
    cells = lambda r: [ours(r), r["difference"], within_tenth(r), verdict_text(r)] + [range_text(r)] * wrong
    return cells(row) + (cells(shipped(row) or row) if SHIPPED in heads else [])


def reasons(rows):
    """Reasons for differences, failed measurements, and differences without a known reason."""
    lines, grouped = [], {}
    for label, r in both(rows):
        if r["why"]:
            grouped.setdefault(r["why"], {}).setdefault(f"`{r['id']}`", []).append(label)
    if grouped:
        named = lambda name, labels: f"{name} ({labels[0]})" if labels in ([PUBLISHED], [SHIPPED]) else name
        lines += ["", "Where ours differs:", ""]
        lines += [wrapped(f"- {', '.join(named(*i) for i in ids.items())}: {why}.") for why, ids in grouped.items()]
    if failed := [(label, r) for label, r in both(rows) if r["errors"]]:
        lines += ["", "Not measured:", ""] + [
            wrapped(
                f"- `{r['id']}`{label and ', ' + label}: {len(r['errors'])} of {r['measured']} measurements;"
                f" {r['errors'][0][:200]}"
            )
            for label, r in failed
        ]
    unknown = dict.fromkeys(
        f"`{r['id']}`" for _, r in both(rows) if r["verdict"] in (DIRECTION, DISAGREES) and not r["why"]
    )
    if unknown:
        lines += ["", wrapped("No reason is known for " + ", ".join(unknown) + ".")]
    return lines


def markdown(results, folder="papers"):
    """The tables of docs/measurements/papers.md; the pictures are in `folder` next to it."""
    lines = ["| paper | claims | " + " | ".join(ORDER) + " | within 10 % |", "|---" * (3 + len(ORDER)) + "|"]
    for _, _, title, mine in by_paper(results):
        for label, rows in sides(mine).items():
            near = collections.Counter(within_tenth(r) for r in rows)
            lines.append(
                f"| {cell(title)}{label and ', ' + label} | {len(rows)} | "
                + " | ".join(str(sum(r["verdict"] == v for r in rows)) for v in ORDER)
                + f" | {near['yes']} of {near['yes'] + near['no']} |"
            )
    for result, name, title, mine in by_paper(results):
        heads = table_heads(mine)
        lines += [
            "",
            f"## {title}",
            "",
            f"Commit {result['commit']}, {result['date'][:10]}, traces: {result['traces']}.",
            "",
            f"    {result['command']}",
            "",
            f"![Ours over the paper's value, claim by claim]({folder}/{name}.svg)",
            "",
            "| claim | where | paper | reproduced if | " + " | ".join(heads) + " |",
            "|---" * (4 + len(heads)) + "|",
        ]
        for r in mine:
            lines.append(
                f"| {cell(r['claim'])} (`{r['id']}`) | {cell(r['section'])} | {cell(paper_value(r))} |"
                f" {reproduced_if(r)} | " + " | ".join(figures(r, heads)) + " |"
            )
        lines += reasons(mine)
        for label, key in (("Stands in", "stands_in"), ("The cost model here", "model_error")):
            texts = list(
                dict.fromkeys(
                    text for r in mine for text in (r[key].split("; ") if key == "stands_in" else [r[key]]) if text
                )
            )
            if texts:
                lines += ["", f"{label}:", ""] + [wrapped(f"- {text}.") for text in texts]
    return "\n".join(lines) + "\n"


def write(path, text):
    """Replaces the text between the marks of `path`; a file without marks, or a new file, becomes `text`."""
    old = path.read_text() if path.exists() else ""
    if BEGIN in old and END in old:
        text = old[: old.index(BEGIN) + len(BEGIN)] + "\n" + text + old[old.index(END) :]
    path.write_text(text)


def wrapped(text):
    return "\n".join(textwrap.wrap(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def commands(papers):
    """data/paper_claims.txt, which `tactus sim --print-papers` prints."""
    lines = [
        (
            "The papers' claims, each with the first of the commands that it compares. `bench/papers/run.py --claim ID`"
            " runs all of them and says what"
        ),
        (
            "came out. Files in CAPITALS are lengths that it makes, SEED is 1, 2 and so on; a command that is that of"
            " the claim before is left out."
        ),
        "",
    ]
    shown = ""
    for paper, (title, claims) in papers.items():
        lines += [title, f"  all of it: bench/papers/run.py --paper {paper}", ""]
        for claim in claims:
            lines.append(f"  {claim.id}: {claim.says}; paper: {claim.paper} ({claim.section})")
            first = next(iter(commands_of(claim)))[1]
            if first != shown:
                lines.append(f"    {first}")
            shown = first
        lines.append("")
    return "\n".join(lines) + "\n"
