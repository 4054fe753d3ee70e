"""Fetch uv as `bootstrap/box/fetch_uv.py` does, in fewer words.

usage: python3 fetch_uv.py FALLBACK_INDEX FILE SHA256 DESTINATION
"""

import hashlib
import io
import os
import re
import ssl
import sys
import urllib.parse
import urllib.request
import zipfile

from indexes import pip_setting

FALLBACK, NAME, SHA, DESTINATION = sys.argv[1:]


def built_in():
    """The index that this box's pip has built in."""
    for folder in sys.path + ["/usr/lib/python3/dist-packages"]:
        try:
            with open(folder + "/pip/_internal/models/index.py") as file:
                return re.findall(r'PyPI = PackageIndex\(\s*"([^"]+)"', file.read())[0] + "simple"
        except OSError:
            pass
    return ""


def get(url):
    """The body behind `url`."""
    context = ssl.create_default_context(cafile=pip_setting("cert") or None)
    return urllib.request.urlopen(url, timeout=60, context=context).read()


PAGE = os.environ.get("UV_DEFAULT_INDEX") or pip_setting("index-url") or built_in() or FALLBACK
PAGE = PAGE.rstrip("/") + "/uv/"
LINKS = re.findall('href="([^"#]+/' + re.escape(NAME) + ')[#"]', get(PAGE).decode())
WHEEL = get(urllib.parse.urljoin(PAGE, LINKS[0]))
if hashlib.sha256(WHEEL).hexdigest() != SHA:
    sys.exit("the SHA-256 of %s is wrong" % NAME)
ARCHIVE = zipfile.ZipFile(io.BytesIO(WHEEL))
MEMBER = [name for name in ARCHIVE.namelist() if name.endswith("/scripts/uv")][0]
with open(DESTINATION + ".new", "wb") as FILE:
    FILE.write(ARCHIVE.read(MEMBER))
os.chmod(DESTINATION + ".new", 0o755)
os.replace(DESTINATION + ".new", DESTINATION)
