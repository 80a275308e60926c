"""Writes patches/openrlhf-X/files.json, after a change of the patches: python requirements/record_patches.py DIR

DIR contains openrlhf/ as released, without patches.
"""

import hashlib
import json
import sys
from pathlib import Path

from real_openrlhf.base.files import sha256
from real_openrlhf.patching import AFTER, hunks, load_series, moved

root, series = Path(sys.argv[1]), load_series()
paths = sorted({hunk.path for patch in series.patches for hunk in hunks(patch.read_bytes())})
after = moved({path: (root / path).read_bytes() for path in paths}, series, AFTER)
files = {
    path: {"before": sha256(root / path), "after": hashlib.sha256(content).hexdigest()}
    for path, content in after.items()
}
(series.folder / "files.json").write_text(json.dumps(files, indent=1) + "\n")
print(f"{series.folder / 'files.json'}: {len(files)} files")
