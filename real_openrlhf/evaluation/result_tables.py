"""The paper's table rows from results.json: Markdown and LaTeX (booktabs)."""


def markdown(results: dict) -> str:
    columns = _columns(results)
    header = ["Model", *(title for title, _, _ in columns)]
    row = [results["name"], *(_plain(value, error) for _, value, error in columns)]
    lines = [header, ["---", *["---:"] * len(columns)], row]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\n{footnote(results)}\n"


def latex(results: dict) -> str:
    columns = _columns(results)
    header = " & ".join(["Model", *(_escape(title) for title, _, _ in columns)])
    row = " & ".join([_escape(results["name"]), *(_typeset(value, error) for _, value, error in columns)])
    return "\n".join(
        [
            f"\\begin{{tabular}}{{l{'c' * len(columns)}}}",
            "\\toprule",
            f"{header} \\\\",
            "\\midrule",
            f"{row} \\\\",
            "\\bottomrule",
            "\\end{tabular}",
            "",
            f"\\par\\smallskip{{\\footnotesize {_escape(footnote(results))}}}",
            "",
        ]
    )


def footnote(results: dict) -> str:
    """Everything without which the numbers cannot be compared."""
    settings, sets = results["settings"], results["benchmarks"].values()
    counts = ", ".join(f"{entry['title']} {entry['problems']}" for entry in sets)
    ungraded = sum(entry["ungraded"] for entry in sets)
    return (
        f"pass@1 ± standard error (bootstrap over problems). Problems: {counts}. k = {settings['k']} samples each, "
        f"T = {settings['temperature']}, top_p = {settings['top_p']}, max tokens = {settings['max_new_tokens']}, "
        f"grader = {settings['grader']}, seed {settings['seed']}."
        + (f" A response must close its thinking: {settings['think']}." if settings["think"] else "")
        + (f" {ungraded} samples could not be graded and count as wrong." if ungraded else "")
    )


def _columns(results: dict) -> list[tuple[str, float, float]]:
    """Title, pass@1 and its standard error; the average only where there is something to average."""
    entries = [(entry["title"], entry["pass@1"], entry["standard_error"]) for entry in results["benchmarks"].values()]
    if len(entries) > 1:
        entries.append(("Avg.", results["average"]["pass@1"], results["average"]["standard_error"]))
    return entries


def _plain(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def _typeset(value: float, error: float) -> str:
    return f"{value:.3f} {{\\scriptsize$\\pm${error:.3f}}}"


def _escape(text: str) -> str:
    for character in "\\&%$#_{}":
        text = text.replace(character, f"\\{character}" if character != "\\" else "/")
    return text.replace("±", "$\\pm$")
