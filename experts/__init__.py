"""Servers that do tasks, one folder each."""

import os

for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ[_name] = "1"  # onnxruntime would tell its makers of every model; read when these libraries are imported
