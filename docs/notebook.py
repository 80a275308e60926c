"""Runs examples/real_in_ten_minutes.ipynb in a clean process and stores its outputs: `python docs/notebook.py`.

`python docs/notebook.py --check` fails if what the cells print is not what is stored; pictures are not compared.
"""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path

import matplotlib

NOTEBOOK = Path(__file__).parents[1] / "examples/real_in_ten_minutes.ipynb"


def outputs(source: str, names: dict) -> list[dict]:
    """What a notebook keeps of a cell: its text, then its figures."""
    from matplotlib import pyplot

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(source, NOTEBOOK.name, "exec"), names)
    text = said.getvalue().splitlines(keepends=True)
    found = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=70, bbox_inches="tight")
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return found


def main() -> None:
    matplotlib.use("agg")
    notebook, names = json.loads(NOTEBOOK.read_text()), {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        found = outputs("".join(cell["source"]), names)
        texts = [[one["text"] for one in own if "text" in one] for own in (cell["outputs"], found)]
        if "--check" in sys.argv and (texts[0] != texts[1] or len(cell["outputs"]) != len(found)):
            sys.exit(f"cell {count} prints {texts[1]}, and {texts[0]} is stored. Run python docs/notebook.py")
        cell |= {"execution_count": count, "outputs": found}
    if "--check" not in sys.argv:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
