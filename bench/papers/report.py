"""What bench/papers prints: a table for a terminal, the same in Markdown, and the list of claims with their
commands."""

import collections
import textwrap

import picture
from claims import DIRECTION, DISAGREES, FAILED, REPRODUCED
from simulations import commands_of

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
ORDER = (REPRODUCED, DIRECTION, DISAGREES, FAILED)


def number(x, unit=""):
    if x is None:
        return "-"
    text = f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"
    return f"{text} {unit}" if unit and unit != "x" else text


def ours(row):
    spread = (
        ""
        if row["least"] is None or row["least"] == row["largest"]
        else f" ({number(row['least'])} to {number(row['largest'])})"
    )
    return number(row["ours"], row["unit"]) + spread


def range_text(row):
    """Least and largest value under the perturbed cost models; beside them what another engine would have."""
    if not row["variants"]:
        return ""
    values = [v for v in row["variants"].values() if v is not None]
    return (
        f"{number(min(values))} to {number(max(values))}"
        + (f"; turns under {', '.join(row['turns'])}" if row["turns"] else "")
        + "".join(f"; {number(value)} with {name}" for name, value in row.get("what_ifs", {}).items())
    )


def counts(rows):
    found = collections.Counter(row["verdict"] for row in rows)
    return ", ".join(f"{found[name]} {name}" for name in ORDER if found[name])


def by_paper(results):
    """(run, name, title, its rows) of every paper that was run."""
    for result in results:
        for name, title in result["papers"].items():
            if rows := [row for row in result["rows"] if row["paper"] == name]:
                yield result, name, title, rows


def plain(results):
    lines = []
    for _, _, title, rows in by_paper(results):
        lines += [title, f"  {len(rows)} claims: {counts(rows)}", ""]
        for r in rows:
            lines.append(
                f"  {r['id']:<26} paper {r['paper_value']:<22} ours {ours(r):<26} {r['difference']:<9} {r['verdict']}"
            )
            lines += textwrap.wrap(
                f"{r['claim']} ({r['section']})", 130, initial_indent="      ", subsequent_indent="      "
            )
            for label, text in (
                ("why", r["why"]),
                ("stands in", r["stands_in"]),
                ("with wrong step times", range_text(r)),
                *(("error", e[:600]) for e in r["errors"]),
            ):
                if text:
                    lines += textwrap.wrap(f"{label}: {text}", 130, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    return "\n".join(lines) + "\n"


def reproduced_if(row):
    """From where to where ours counts as reproduced."""
    low, high = row["aim"]["low"], row["aim"]["high"]
    unit = row["unit"]
    if low is None or high is None:
        return f"at most {number(high, unit)}" if low is None else f"at least {number(low, unit)}"
    return f"{number(low)} to {number(high, unit)}"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def pictures(results, folder):
    """One of each paper, which the tables show."""
    folder.mkdir(parents=True, exist_ok=True)
    for _, name, title, mine in by_paper(results):
        (folder / f"{name}.svg").write_text(picture.svg(title, mine))


def markdown(results, folder="papers"):
    """The tables of docs/papers.md; the pictures are in `folder` beside it."""
    lines = ["| paper | claims | " + " | ".join(ORDER) + " |", "|---" * (2 + len(ORDER)) + "|"]
    for _, _, title, mine in by_paper(results):
        lines.append(
            f"| {cell(title)} | {len(mine)} | "
            + " | ".join(str(sum(r["verdict"] == v for r in mine)) for v in ORDER)
            + " |"
        )
    for result, name, title, mine in by_paper(results):
        calibrated = any(r["variants"] for r in mine)
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
            "| claim | where | paper | reproduced if | ours | difference | verdict |"
            + (" with wrong step times |" if calibrated else ""),
            "|---" * (8 if calibrated else 7) + "|",
        ]
        for r in mine:
            lines.append(
                f"| {cell(r['claim'])} (`{r['id']}`) | {cell(r['section'])} | {cell(r['paper_value'])} |"
                f" {reproduced_if(r)} | {ours(r)} | {r['difference']} | {r['verdict']} |"
                + (f" {range_text(r)} |" if calibrated else "")
            )
        reasons = [r for r in mine if r["why"]]
        if reasons:
            lines += ["", "Where ours differs:", ""]
            grouped = collections.defaultdict(list)
            for r in reasons:
                grouped[r["why"]].append(f"`{r['id']}`")
            lines += [wrapped(f"- {', '.join(ids)}: {why}.") for why, ids in grouped.items()]
        if failed := [r for r in mine if r["errors"]]:
            lines += ["", "Not measured:", ""] + [
                wrapped(f"- `{r['id']}`: {len(r['errors'])} of {r['measured']} measurements; {r['errors'][0][:200]}")
                for r in failed
            ]
        unknown = [r for r in mine if r["verdict"] in (DIRECTION, DISAGREES) and not r["why"]]
        if unknown:
            lines += ["", wrapped("No reason is known for " + ", ".join(f"`{r['id']}`" for r in unknown) + ".")]
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
    """Replaces what stands between the marks of `path`; a file without them, or that is not there, becomes `text`."""
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
