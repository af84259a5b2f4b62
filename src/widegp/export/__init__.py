"""Fitted models as ONNX graphs, which run where there is no Python."""

from widegp.export.model import ExportError, export_model

__all__ = ["ExportError", "export_model"]
