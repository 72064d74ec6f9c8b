"""Signed manifest of a job: everything a rerun needs except the seed, and the libraries that were used."""

import hashlib
from typing import Any

from app.job_kinds import kind_of
from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.sealing import Signer
from app.store.sql.models import Job

_EXACTNESS = (
    "The same source, parameters, seed and revision give the byte-identical destination for any "
    "number of workers and threads. Where a service computes with floating-point sums, that holds "
    "on one platform; across platforms it agrees within 1e-9, relative."
)


def signed_manifest(job: Job, result: dict[str, Any], outcome: str, signer: Signer) -> dict[str, Any]:
    """Build ``{"manifest": ..., "signature": ...}`` of a job that succeeded with this result."""
    manifest = {
        "manifest_version": 1,
        "job": job.id,
        "service": job.service,
        "revision": job.revision,
        "parameters": job.parameters,
        "seed_fingerprint": job.seed_fingerprint,
        "source": {
            "digest": job.source_digest,
            "fields": job.source_fields,
            "rows": job.row_count,
        },
        "outcome": outcome,
        "libraries": result["libraries"],
        "platform": result["platform"],
        "exactness": _EXACTNESS,
        "created_at": job.created_at.isoformat(),
    }
    if job.options:
        manifest["options"] = job.options
    if kind_of(job.service).has_rows:
        manifest["destination"] = result["destination"]
    else:
        manifest["report_digest"] = f"sha256:{hashlib.sha256(canonical_json(result['report'])).hexdigest()}"
    if kind_of(job.service).reads_destination:
        manifest["destination"] = {
            "digest": job.destination_digest,
            "fields": job.destination_fields,
            "rows": job.destination_rows,
        }
    if job.control_digest is not None:
        manifest["control"] = {
            "digest": job.control_digest,
            "fields": job.control_fields,
            "rows": job.control_rows,
        }
    if job.options and "candidates" in job.options:
        manifest["candidate"] = result["chosen"]
    if "series" in result:
        manifest["series"] = result["series"]
    if job.rerun_of is not None:
        manifest["rerun_of"] = job.rerun_of
    return {"manifest": manifest, "signature": signer.sign(manifest)}
