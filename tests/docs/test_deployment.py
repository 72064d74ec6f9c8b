"""The commands of `docs/deployment.md`, run without Docker and without a cluster.

Commands of the project are run: `deploy.setup` creates its secrets, and the arguments of `docker compose exec
service` run with the real service of these tests. No image is built, no container started, nothing sent to
a cluster. Calls of `docker` and `kubectl` are recorded; each name, file, tag, volume, label and option is
compared with Dockerfile, `compose.yaml`, the manifests and the created secrets. If kubectl is installed, it
checks its calls and renders the overlay.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from app.settings import unknown_variables
from tests.deploy.image import Stage, stages
from tests.deploy.test_files import KUBERNETES, composed, manifests, pods
from tests.docs.blocks import PAGES, ROOT, Reader, blocks

PAGE = PAGES / "deployment.md"
OVERLAY = "overlay/kustomization.yaml"
SECRETS = "/run/secrets/rowveil"
"""Folder of a pod's secrets."""
SHELL = """
mkdir typed
taken_down() { printf '%s\\0' "$@" > "typed/$(ls typed | wc -l)"; }
docker() {
    taken_down docker "$@"
    if test "$1 $2" = "compose exec"; then shift 3; "$@"; fi
}
kubectl() { taken_down kubectl "$@"; }
python() { .venv/bin/python "$@"; }
"""


@dataclass(frozen=True, slots=True)
class Typed:
    """State after all commands of the page."""

    folder: Path
    commands: list[list[str]]
    """Words of the calls of docker and kubectl, including calls within a line of text."""

    def of(self, *words: str) -> list[list[str]]:
        """Return the calls that begin with these words, without them; there is at least one."""
        found = [call[len(words) :] for call in self.commands if call[: len(words)] == list(words)]
        assert found, words
        return found

    def made(self, role: str) -> set[str]:
        """The secrets that `deploy.setup` made for a role."""
        return {path.name for path in (self.folder / "secrets" / role).iterdir()}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory, address: str, service_home: Path) -> Typed:
    """The page, typed in from its first block to its last."""
    folder = tmp_path_factory.mktemp("deployment")
    reader = Reader(folder, address, service_home, shell=SHELL)
    reader.settle()
    (file,) = (block for block in blocks(PAGE) if block.language == "yaml")
    name, _, content = file.text.partition("\n")
    assert name == f"# {OVERLAY}"
    (folder / "database-ca.pem").touch()  # the reader's own
    (folder / OVERLAY).parent.mkdir()
    (folder / OVERLAY).write_text(content)
    commands = [block for block in blocks(PAGE) if block.language == "sh"]
    others = [block.language for block in blocks(PAGE) if block not in commands]
    assert others == ["yaml", "nginx"]  # `tests/deploy/test_proxy.py` runs the latter
    reader.run(commands)
    calls = sorted((folder / "typed").iterdir(), key=lambda path: int(path.name))
    documented = re.findall(
        r"`(docker [^`]+)`", re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.M | re.S)
    )
    words = [call.read_text().split("\0")[:-1] for call in calls]
    return Typed(folder, words + [shlex.split(call) for call in documented])


class Words(argparse.ArgumentParser):
    """The options that the page uses of a command; any other is a new one, to be looked at."""

    def error(self, message: str) -> Any:
        raise AssertionError(f"{self.prog}: {message}")


def parsed(command: str, given: list[str], flags: str, values: str, *rest: str) -> argparse.Namespace:
    parser = Words(prog=command, add_help=False, allow_abbrev=False)
    for flag in flags.split():
        parser.add_argument(flag, action="store_true")
    for option in values.split():
        parser.add_argument(option, action="append", default=[])
    for name in rest:
        parser.add_argument(name, nargs=argparse.REMAINDER if name == "command" else None)
    return parser.parse_args(given)


def image() -> Stage:
    return stages(ROOT / "Dockerfile")[-1]


def volumes_of(service: dict[str, Any]) -> dict[str, str]:
    """Return mount point -> volume of a service in compose.yaml."""
    mounts = [
        mount if isinstance(mount, dict) else dict(zip(("source", "target"), mount.split(":"), strict=True))
        for mount in service["volumes"]
    ]
    return {mount["target"]: mount["source"] for mount in mounts}


def test_the_image_s_commands_name_what_it_is(typed: Typed) -> None:
    """Tag, volumes, port and confinement are those of Dockerfile and compose file."""
    service = composed()["service"]
    (built,) = (parsed("docker build", call, "", "-t", "context") for call in typed.of("docker", "build"))
    assert built.t == [service["image"]]
    assert (ROOT / built.context / "Dockerfile").is_file()
    options = "--cap-drop --security-opt --tmpfs -v -p"
    (run,) = (
        parsed("docker run", call, "--read-only", options, "image") for call in typed.of("docker", "run")
    )
    assert run.image == service["image"]
    assert (run.read_only, run.cap_drop) == (service["read_only"], service["cap_drop"])
    assert [option.removesuffix(":true") for option in service["security_opt"]] == run.security_opt
    volumes = [volume.split(":")[1] for volume in run.v]
    assert sorted(volumes + run.tmpfs) == sorted(json.loads(image().last("VOLUME")))
    assert [port.rpartition(":")[2] for port in run.p] == image().last("EXPOSE").split()
    assert run.p == service["ports"]


def test_the_table_of_volumes_is_what_there_is() -> None:
    """The table lists the volumes of the image, and the one shared with workers."""
    documented = set(re.findall(r"^\| `(/[^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE))
    shared = volumes_of(composed()["service"]).keys() & volumes_of(composed()["worker"]).keys()
    assert documented == {*json.loads(image().last("VOLUME")), *(shared - {"/run/secrets"})}


def test_compose_s_commands_name_its_services(typed: Typed) -> None:
    """The file is one that setup creates, in the mounted volume."""
    services = composed()
    for call in typed.of("docker", "compose", "up"):
        up = parsed("docker compose up", call, "--build", "--scale")
        assert {scaled.split("=")[0] for scaled in up.scale} <= services.keys()
        assert all(services[scaled.split("=")[0]]["scale"] for scaled in up.scale)
    for call in typed.of("docker", "compose", "exec"):
        assert call[0] in services
        assert call[1:3] == ["python", "-m"]  # which was run
    for call in typed.of("docker", "compose", "run"):
        run = parsed("docker compose run", call, "--rm", "--entrypoint", "service", "command")
        assert run.service in services
        folder = services[run.service]["entrypoint"][-1]
        assert volumes_of(services[run.service])[folder] == "secrets"
        for path in run.command:
            assert (typed.folder / "secrets" / Path(path).relative_to(folder)).is_file()
    others = {
        mount["volume"]["subpath"]
        for service in services.values()
        for mount in service["volumes"]
        if isinstance(mount, dict)
    }
    assert others == {path.name for path in (typed.folder / "secrets").iterdir()} - {"authority"}


def test_settings_of_the_page_are_ones() -> None:
    named = re.findall(r"\bROWVEIL_[A-Z_]+", PAGE.read_text())
    assert named
    assert unknown_variables(dict.fromkeys(named, "")) == []


def files_wanted(pod: str) -> set[str]:
    """Return the secret files that a pod's settings name."""
    (container,) = pods()[pod]["containers"]
    shared = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["configMapGenerator"][0]
    documented = [*container.get("args", []), *(each.get("value", "") for each in container.get("env", []))]
    documented += shared["literals"] if "envFrom" in container else []
    return {word.partition(f"{SECRETS}/")[2] for word in documented} - {""}


def test_every_secret_of_a_pod_is_made_and_nothing_is_made_for_nobody(typed: Typed) -> None:
    """Each secret has the name and every file that the pod's settings name."""
    namespace = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["namespace"]
    made: dict[str, argparse.Namespace] = {}
    for call in typed.of("kubectl", "-n", namespace, "create", "secret", "generic"):
        secret = parsed("kubectl create secret", call, "", "--from-file --from-literal", "name")
        made[secret.name] = secret
    wanted = {
        volume["secret"]["secretName"]: pod
        for pod, spec in pods().items()
        for volume in spec["volumes"]
        if "secret" in volume
    }
    for name, pod in wanted.items():
        (folder,) = made[name].from_file
        assert Path(folder).parent == Path("secrets")
        assert files_wanted(pod), pod
        assert files_wanted(pod) <= typed.made(Path(folder).name)
    (url,) = (each for each in pods()["service"]["containers"][0]["env"] if "valueFrom" in each)
    reference = url["valueFrom"]["secretKeyRef"]
    assert made.keys() == {*wanted, reference["name"]}
    (literal,) = made[reference["name"]].from_literal
    key, _, address = literal.partition("=")
    assert key == reference["key"]
    database = urlsplit(address)
    given = parse_qs(database.query, strict_parsing=True)
    assert database.scheme == "postgresql"
    assert given["sslmode"] == ["verify-full"]  # for which libpq wants the file of an authority
    for option in ("sslrootcert", "passfile"):
        assert given[option][0].removeprefix(f"{SECRETS}/") in typed.made("service")
    user = (typed.folder / "secrets/service/pgpass").read_text().split(":")[3]
    assert database.username == user
    assert f"*:*:*:{user}:<password>" in PAGE.read_text()


def test_namespaces_are_made_and_labelled_as_the_policies_ask(typed: Typed) -> None:
    (namespace,) = (each["metadata"]["name"] for each in manifests() if each["kind"] == "Namespace")
    assert typed.of("kubectl", "create", "namespace") == [[namespace]]
    labels = {call[1] for call in typed.of("kubectl", "label", "namespace")}
    selected = {
        f"{name}={value}"
        for policy in manifests()
        if policy["kind"] == "NetworkPolicy"
        for rule in policy["spec"].get("ingress", []) + policy["spec"].get("egress", [])
        for peer in rule.get("from", []) + rule.get("to", [])
        for name, value in peer.get("namespaceSelector", {}).get("matchLabels", {}).items()
    }
    assert labels == {label for label in selected if not label.startswith("kubernetes.io/")}
    (port,) = {
        f"{each['metadata']['name']}:{port['port']}"
        for each in manifests()
        if each["kind"] == "Service" and each["metadata"]["name"] == "service"
        for port in each["spec"]["ports"]
    }
    assert f"`{port}`" in PAGE.read_text()


def test_the_overlay_changes_what_is_in_the_base(typed: Typed) -> None:
    """Its base is there, its image is every pod's, and its patches have something to change."""
    assert typed.of("kubectl", "apply", "-k") == [[Path(OVERLAY).parent.name]]
    overlay = yaml.safe_load((typed.folder / OVERLAY).read_text())
    (base,) = overlay["resources"]
    assert (typed.folder / Path(OVERLAY).parent / base).resolve() == KUBERNETES.resolve()
    names = {
        each["image"] for pod in pods().values() for each in pod["containers"] + pod.get("initContainers", [])
    }
    assert {each["name"] for each in overlay["images"]} == names
    for patch in overlay["patches"]:
        (target,) = (
            each
            for each in manifests()
            if (each["kind"], each["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"])
        )
        for operation in yaml.safe_load(patch["patch"]):
            *way, last = operation["path"].strip("/").split("/")
            inner = target
            for name in way:
                inner = inner[name]
            assert (last in inner) is (operation["op"] == "replace")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_takes_the_commands_and_renders_the_overlay(typed: Typed) -> None:
    """kubectl renders the base with the changes of the overlay, without a cluster."""
    for call in typed.of("kubectl"):
        if "create" in call:
            assert kubectl(typed, *call, "--dry-run=client", "--output=name")
    rendered = list(yaml.safe_load_all(kubectl(typed, "kustomize", Path(OVERLAY).parent.name)))
    assert len(rendered) == len(manifests()) + 1  # the settings
    overlay = yaml.safe_load((typed.folder / OVERLAY).read_text())
    (image,) = (f"{each['newName']}:{each['newTag']}" for each in overlay["images"])
    images = {
        each["image"]
        for document in rendered
        if document["kind"] == "Deployment"
        for pod in [document["spec"]["template"]["spec"]]
        for each in pod["containers"] + pod.get("initContainers", [])
    }
    assert images == {image}
    (claim,) = (each for each in rendered if each["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["storageClassName"] == "shared-files"


def kubectl(typed: Typed, *words: str) -> str:
    """Return the output of the real kubectl without a cluster."""
    done = subprocess.run(
        ["kubectl", *words],  # noqa: S607 - as a reader has it
        cwd=typed.folder,
        env=os.environ | {"KUBECONFIG": os.devnull, "HOME": str(typed.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
