"""Content-addressed store of artifacts, by tenant and SHA-256, in a local folder or an object store."""

from services.common.artifacts.store import INLINE_BYTES, ArtifactStore

__all__ = ["INLINE_BYTES", "ArtifactStore"]
