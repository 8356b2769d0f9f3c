"""Seeded random cases of single operators, with the answers of ONNX Runtime."""
