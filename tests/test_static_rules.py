"""The rules of ruff by which the code has no known dangerous call are on, for all that is shipped."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DANGEROUS: Final = """
import asyncio, hashlib, os, pickle, random, ssl, subprocess, tarfile, tempfile, xml.etree.ElementTree
import httpx, requests, yaml
from django.db.models.expressions import RawSQL
from django.template import Template  # TID251
from django.utils.safestring import mark_safe

def every(text, cursor):
    asyncio.create_subprocess_shell(text)  # TID251
    cursor.execute(f"SELECT * FROM accounts WHERE name = '{text}'")  # S608
    eval(text)  # S307
    exec(text)  # S102
    hashlib.md5(text)  # S324
    httpx.get(text, verify=False, timeout=9)  # S501
    mark_safe(text)  # S308
    os.execl(text, text)  # S606
    os.system(text)  # S605
    pickle.loads(text)  # S301
    random.random()  # S311
    RawSQL(text, [])  # S611
    requests.get(text)  # S113
    ssl._create_unverified_context()  # S323
    subprocess.run(text, shell=True)  # S602
    every(text, shell=True)  # S604
    tarfile.open(text).extractall()  # S202
    tempfile.mktemp()  # S306
    Template(text)
    xml.etree.ElementTree.parse(text)  # S314
    yaml.load(text, Loader=yaml.Loader)  # S506
"""


def test_each_named_rule_is_on() -> None:
    words = [sys.executable, "-m", "ruff", "check", "--output-format", "json", "--stdin-filename", "pages/new.py", "-"]
    done = subprocess.run(words, input=DANGEROUS, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {(each["location"]["row"], each["code"]) for each in json.loads(done.stdout)}
    lines = enumerate(DANGEROUS.splitlines(), 1)
    named = {(number, match[1]) for number, line in lines if (match := re.search(r"# ([A-Z]+\d+)$", line))}
    assert len(named) > 20
    assert named <= found


def test_what_is_off_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    rules = tomllib.loads(text)["tool"]["ruff"]["lint"]
    off = [rule for rule in rules["ignore"] if rule.startswith("S")]
    assert all(re.search(rf'"{rule}",? +# \w', text) for rule in off)
    files = [path for path, ignored in rules["per-file-ignores"].items() if "S" in ignored]
    assert sorted(files) == ["**/tests/**", "bench/**", "tests/**"]
