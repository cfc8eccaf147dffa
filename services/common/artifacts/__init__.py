"""Artifacts: bytes kept once per tenant under their digest, in a folder or an object store."""

from services.common.artifacts.store import INLINE_BYTES, ArtifactStore

__all__ = ["INLINE_BYTES", "ArtifactStore"]
