"""Command ``rowveil verify MANIFEST SOURCE DESTINATION``: verifies signature, signer and tables."""

import argparse
import base64
import json
from itertools import chain
from typing import Any

import orjson

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, FileDamaged, open_input, write
from app.cli.request_builder import CSV, Call
from app.cli.streams import print_failure, shown
from app.cli.workspace import Failed, Workspace
from app.jobs.tables.uploads import Upload
from app.settings import Settings
from app.store.crypto.key_files import KeyUnreadable, load_signing_key
from app.store.crypto.sealing import Signer, signature_holds
from providers.tables.digest import form_of

_KEY_BYTES = 32

_TABLES = ("source", "destination", "control")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the manifest, the tables and the expected signer."""
    parser.add_argument(
        "manifest", metavar="MANIFEST", help="the manifest, as the service or `run --manifest` wrote it"
    )
    parser.add_argument("source", metavar="SOURCE", help="the source table")
    parser.add_argument(
        "destination", metavar="DESTINATION", nargs="?", help="the destination table, if the manifest has one"
    )
    parser.add_argument(
        "--control", metavar="FILE", help="control rows of an attack, if the manifest has them"
    )
    parser.add_argument(
        "--public-key",
        metavar="BASE64",
        help="public key of the required signature. Default: any key, with a warning unless it is "
        "that of ROWVEIL_HOME",
    )


def verify(call: Call, settings: Settings) -> int:
    """Print all differences; return `Exit.DIFFERS` if there is one. Raises CommandFailed."""
    given = call.namespace
    manifest, signature = read_manifest(given.manifest)
    signed = [role for role in _TABLES if role in manifest]
    if given.destination is None and "destination" in signed:
        raise CommandFailed("the manifest has a destination: name its file after the source's", Exit.USAGE)
    if given.destination is not None and "destination" not in signed:
        raise CommandFailed("the manifest has no destination: name only the source's file", Exit.USAGE)
    if (given.control is None) == ("control" in signed):
        wrong = "has control rows: give --control" if given.control is None else "has no control rows"
        raise CommandFailed(f"the manifest {wrong}", Exit.USAGE)
    if [given.manifest, given.source, given.destination, given.control].count(STANDARD) > 1:
        raise CommandFailed(f"'{STANDARD}' can stand for only one of the files", Exit.USAGE)
    wanted = None if given.public_key is None else _public_key(given.public_key)
    differences = _signature_differs(manifest, signature, wanted)
    with Workspace(settings, given.quiet) as workspace:
        for role in signed:
            differences += _table_differs(call, workspace, role, manifest[role])
    write(STANDARD, [f"{shown(difference)}\n".encode() for difference in differences])
    if differences:
        return Exit.DIFFERS
    if given.public_key is None and not _is_own(settings, signature):
        print_failure(
            f"the signature is valid, but the owner of key {signature['key_id']} was not checked: give "
            "--public-key"
        )
    if not given.quiet:
        tables = " and ".join(signed)
        line = f"{manifest.get('service')}: signature and digests are valid ({tables}), key "
        write(STANDARD, [f"{shown(line + signature['key_id'])}\n".encode()])
    return Exit.OK


def read_manifest(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest and its signature. Raises CommandFailed."""
    with open_input(name) as file:
        content = file.read()
    try:
        document = json.loads(content)  # keeps integers of any size exact
        manifest, signature = document["manifest"], document["signature"]
        for role in _TABLES:
            if role in manifest:
                fields = [(field["name"], field["type"]) for field in manifest[role]["fields"]]
                _texts(manifest[role]["digest"], *chain.from_iterable(fields))
        _texts(*(signature[name] for name in ("algorithm", "key_id", "public_key", "value")))
        if "source" not in manifest:
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CommandFailed(
            f'{name} is not a manifest: it must be {{"manifest": ..., "signature": ...}}, with a source'
        ) from None
    return manifest, signature


def _texts(*values: Any) -> None:
    if not all(type(value) is str for value in values):
        raise TypeError


def _signature_differs(
    manifest: dict[str, Any], signature: dict[str, str], wanted: bytes | None
) -> list[str]:
    if not signature_holds(manifest, signature):
        return ["signature: it does not match the manifest: one of them was changed"]
    if wanted is not None and wanted != base64.b64decode(signature["public_key"]):
        return [f"signature: it was made with key {signature.get('key_id')}, not with the required one"]
    return []


def _public_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise CommandFailed("--public-key: a key is 32 bytes in base64", Exit.USAGE)
    return key


def _is_own(settings: Settings, signature: dict[str, str]) -> bool:
    """Return whether the home's own key signed; does not create a key."""
    try:
        if not settings.signing_key_file.is_file():
            return False
        own = Signer(load_signing_key(settings))
    except (KeyUnreadable, OSError):
        return False
    return own.sign({})["public_key"] == signature["public_key"]


def _table_differs(call: Call, workspace: Workspace, role: str, signed: dict[str, Any]) -> list[str]:
    name = getattr(call.namespace, role)
    try:
        form = form_of(signed["digest"])
    except ValueError:
        return [f"{role}: this version does not know the form of the signed digest {signed['digest']}"]
    upload = upload_as_signed(call, name, signed)
    try:
        found = workspace.read(name, upload, form).stored
    except (Failed, FileDamaged) as failed:  # the bytes are not such a table
        return [f"{role}: it cannot be read as the table that was signed: {failed.message}"]
    if found.digest == signed["digest"]:
        return []
    differences = [f"{role}: its digest is {found.digest}, signed is {signed['digest']}"]
    if found.rows != signed.get("rows", found.rows):
        differences.append(f"{role}: it has {found.rows} rows, signed are {signed['rows']}")
    if found.fields != signed["fields"]:
        differences += _fields_differ(role, found.fields, signed["fields"])
    return differences


def upload_as_signed(call: Call, name: str, signed: dict[str, Any] | None) -> Upload:
    """Return media type and CSV options of a file; a CSV has the signed types unless its own are given."""
    upload, csv = call.upload(name, {}), call.given.get(CSV, {})
    if upload.media_type != "text/csv":
        return upload
    if signed is not None and "fields" not in csv:
        types = {field["name"]: field["type"] for field in signed["fields"]}
        csv = {"fields": orjson.dumps(types).decode()} | csv
    return call.upload(name, csv)


def _fields_differ(role: str, found: list[dict[str, str]], signed: list[dict[str, str]]) -> list[str]:
    types, wanted = (({field["name"]: field["type"] for field in fields}) for fields in (found, signed))
    differences = [f"{role}: field '{name}' is missing" for name in wanted if name not in types]
    differences += [f"{role}: field '{name}' was not signed" for name in types if name not in wanted]
    differences += [
        f"{role}: field '{name}' has type {types[name]}, signed is {kind}"
        for name, kind in wanted.items()
        if types.get(name, kind) != kind
    ]
    return differences or [f"{role}: its fields are in another order"]
