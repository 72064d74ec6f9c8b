"""Compose file and Kubernetes manifests keep their promises; their linters run in `make lint`."""

import copy
import json
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings, unknown_variables

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"


def composed() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return services


def manifests() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    listed = sorted(kustomization["resources"])
    assert set(listed) == {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    return [document for name in listed for document in yaml.safe_load_all((KUBERNETES / name).read_text())]


def pods() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests()
        if each["kind"] == "Deployment"
    }


def environments() -> dict[str, dict[str, str]]:
    """Environment variables of each container."""
    found = {f"compose {name}": dict(each.get("environment", {})) for name, each in composed().items()}
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    shared = dict(word.split("=", 1) for word in kustomization["configMapGenerator"][0]["literals"])
    for pod, spec in pods().items():
        for each in spec["containers"]:
            # An address in a secret is not secret here.
            own = {item["name"]: item.get("value", "postgresql:///rowveil") for item in each.get("env", [])}
            found[f"pod {pod}"] = (shared if "envFrom" in each else {}) | own
    return found


def health_commands() -> dict[str, list[str]]:
    """Health checks that run Python in the container."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    found = re.search(r"^HEALTHCHECK.*?CMD (\[.*?\])$", dockerfile, re.MULTILINE | re.DOTALL)
    assert found is not None
    commands = {"Dockerfile": json.loads(found[1])}
    for name, service in composed().items():
        if "test" in service.get("healthcheck", {}):
            commands[f"compose {name}"] = service["healthcheck"]["test"][1:]
    for pod, spec in pods().items():
        for container in spec["containers"]:
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                if command := container.get(kind, {}).get("exec", {}).get("command"):
                    commands[f"pod {pod} {kind}"] = command
    return {name: command for name, command in commands.items() if command[0] == "python"}


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.mark.parametrize("name", health_commands())
def test_a_health_check_goes_past_a_proxy(name: str) -> None:
    """An operator may have set one for the container, such as by Docker's configuration."""
    server = HTTPServer(("127.0.0.1", 0), _Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{server.server_port}", health_commands()[name][2])
    try:
        checked = subprocess.run(
            [sys.executable, "-c", code], env={"http_proxy": "http://127.0.0.1:1"}, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert checked.returncode == 0


@pytest.mark.parametrize("whose", environments())
def test_every_setting_is_one_and_together_they_start(whose: str) -> None:
    """No name is misspelt, and the settings are valid together in production."""
    given = environments()[whose]
    assert unknown_variables(given) == []
    settings = {
        name.removeprefix("ROWVEIL_").lower(): value
        for name, value in given.items()
        if name.startswith("ROWVEIL_")
    }
    if settings:
        assert Settings.model_validate({"home": "/var/lib/rowveil", **settings}).mode == "production"


@pytest.mark.parametrize("name", composed())
def test_a_container_of_compose_is_confined(name: str) -> None:
    service = composed()[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit", "tmpfs", "healthcheck"} - service.keys() <= {"healthcheck"}
    assert "healthcheck" in service or name == "service"  # the image has its own
    for mount in service["volumes"]:
        if isinstance(mount, dict) and mount["target"] == "/run/secrets":
            assert mount["read_only"] is True
    assert "PASSWORD" not in " ".join(service.get("environment", {})).replace("PASSWORD_FILE", "")


def test_compose_shows_the_service_alone_and_to_this_machine_alone() -> None:
    published = {name: each["ports"] for name, each in composed().items() if "ports" in each}
    assert published == {"service": ["127.0.0.1:8080:8080"]}


def test_a_pod_of_the_service_takes_connections_until_all_nodes_know_that_it_ends() -> None:
    """Its grace time also covers running jobs and the final writes."""
    pod = pods()["service"]
    (container,) = pod["containers"]
    code = container["lifecycle"]["preStop"]["exec"]["command"][2]
    paused = re.fullmatch(r"import time; time\.sleep\((\d+)\)", code)
    assert paused is not None
    needed = float(paused[1]) + float(Settings.model_fields["shutdown_grace"].default) + 20
    assert pod["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("name", pods())
def test_a_pod_keeps_to_the_restricted_standard(name: str) -> None:
    """The standard is kubernetes.io/docs/concepts/security/pod-security-standards, on a read-only root."""
    pod = pods()[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all(not {"hostPath"} & volume.keys() for volume in pod["volumes"])
    for each in [*pod["containers"], *pod.get("initContainers", [])]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert each["resources"].keys() == {"requests", "limits"}


def test_a_worker_has_the_memory_that_the_service_gives_its_jobs() -> None:
    """With 1 GiB more for the worker's own memory and the files it reads."""
    (worker,) = pods()["worker"]["containers"]
    job = int(environments()["pod service"]["ROWVEIL_WORKER_MEMORY_BYTES"])
    assert worker["resources"]["limits"]["memory"] == "4Gi"
    assert composed()["worker"]["mem_limit"] == "4g"
    assert job == int(environments()["compose service"]["ROWVEIL_WORKER_MEMORY_BYTES"])
    assert job + 2**30 <= 4 * 2**30


def test_the_scheduler_is_started_alike_everywhere() -> None:
    (pod,) = pods()["scheduler"]["containers"]
    compose = composed()["scheduler"]
    assert pod["command"] == compose["entrypoint"]
    in_pod = [word.replace("/run/secrets/rowveil/", "/run/secrets/") for word in pod["args"]]
    assert in_pod == compose["command"]
    assert json.dumps(pod["startupProbe"]["exec"]["command"][2]) in json.dumps(compose["healthcheck"]["test"])


def test_what_is_scaled_states_no_number_of_its_own() -> None:
    """Every `apply` would return to that number, and stop the jobs of the workers beyond it."""
    found = manifests()
    scalers = [each for each in found if each["kind"] == "HorizontalPodAutoscaler"]
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}
    assert scaled == {"worker"}
    stated = {each["metadata"]["name"] for each in found if "replicas" in each.get("spec", {})}
    assert stated == {"service", "scheduler"}


BUCKET_OVERLAY = ROOT / "deploy" / "kubernetes-s3"


def overlay() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((BUCKET_OVERLAY / "kustomization.yaml").read_text())
    return found


def overlaid(name: str) -> dict[str, Any]:
    """The pod of a deployment after the JSON patches (RFC 6902) of the overlay."""
    pod = {"spec": {"template": {"spec": copy.deepcopy(pods()[name])}}}
    target = {"kind": "Deployment", "name": name}
    for patch in (each for each in overlay()["patches"] if each["target"] == target):
        for step in yaml.safe_load(patch["patch"]):
            *way, last = step["path"].strip("/").split("/")
            place: Any = pod
            for word in way:
                place = place[int(word) if isinstance(place, list) else word]
            if step["op"] == "test":
                assert place[last] == step["value"]
            elif last == "-":
                assert step["op"] == "add"
                place.append(step["value"])
            else:
                assert step["op"] == "replace"
                place[int(last)] = step["value"]
    spec: dict[str, Any] = pod["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", ["service", "worker"])
def test_the_overlay_with_a_bucket_has_no_shared_volume(name: str) -> None:
    """Each pod has a folder of its own in its place, and the credentials; the settings are valid together."""
    pod = overlaid(name)
    assert not [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    (work,) = (volume for volume in pod["volumes"] if volume["name"] == "shared")
    assert work["emptyDir"]["sizeLimit"] == "40Gi"
    (container,) = pod["containers"]
    assert {"name": "shared", "mountPath": "/srv/rowveil"} in container["volumeMounts"]
    assert container["envFrom"][-1]["secretRef"]["name"] == "rowveil-storage"
    more = dict(word.split("=", 1) for word in overlay()["configMapGenerator"][0]["literals"])
    given = environments()[f"pod {name}"] | more
    assert unknown_variables(given) == []
    named = {key.removeprefix("ROWVEIL_").lower(): text for key, text in given.items() if "ROWVEIL_" in key}
    assert Settings.model_validate({"home": "/var/lib/rowveil", **named}).storage == "s3://rowveil/sealed"


def test_the_overlay_deletes_the_claim_and_lets_workers_reach_the_store() -> None:
    assert overlay()["resources"] == ["../kubernetes", "network.yaml"]
    claims = [each for each in manifests() if each["kind"] == "PersistentVolumeClaim"]
    deleted = [yaml.safe_load(each["patch"]) for each in overlay()["patches"] if "$patch" in each["patch"]]
    assert [each["metadata"]["name"] for each in deleted] == [each["metadata"]["name"] for each in claims]
    (policy,) = yaml.safe_load_all((BUCKET_OVERLAY / "network.yaml").read_text())
    (of_service,) = (each for each in manifests() if each["metadata"]["name"] == "service-outwards")
    assert policy["spec"]["egress"] == of_service["spec"]["egress"][1:]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "worker"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_the_overlay_with_a_bucket() -> None:
    command = ["kubectl", "kustomize", str(BUCKET_OVERLAY)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [each for each in yaml.safe_load_all(rendered) if each["kind"] != "Namespace"]
    assert "PersistentVolumeClaim" not in {each["kind"] for each in found}
    specs = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "Deployment"}
    for name in ("service", "worker"):
        assert specs[name]["template"]["spec"]["volumes"] == overlaid(name)["volumes"]


@pytest.mark.parametrize("name", ["service", "worker"])
def test_compose_with_a_bucket_has_no_shared_volume(name: str) -> None:
    """Compose merges volumes by their targets; a volume without a name is one container's own."""
    services = yaml.safe_load((ROOT / "compose.s3.yaml").read_text())["services"]
    assert services.keys() == {"service", "worker"}
    base = composed()[name]
    assert "shared:/srv/rowveil" in base["volumes"]
    assert services[name]["volumes"] == [{"type": "volume", "target": "/srv/rowveil"}]
    assert services[name]["env_file"] == ["storage.env"]
    for key in ("read_only", "cap_drop", "security_opt", "mem_limit", "cpus"):
        assert services[name][key] == base[key]
    reaches = {*base["networks"], *services[name].get("networks", [])}
    assert reaches & {"front", "storage"}, "the other networks are internal"
