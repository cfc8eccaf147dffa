"""Reads schemas from the source text of pydantic models that were generated from custom resource definitions."""

import ast
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_TYPES: dict[str, Schema] = {
    "Any": {},
    "AwareDatetime": {"type": "string"},
    "Base64Str": {"type": "string"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "int": {"type": "integer"},
    "str": {"type": "string"},
}
_KEYWORDS = {"ge": "minimum", "le": "maximum"}
_LENGTHS = {
    "min_length": {"array": "minItems", "string": "minLength"},
    "max_length": {"array": "maxItems", "string": "maxLength"},
}


def read_schema(source: str, kind: str) -> Schema:
    """Returns the schema of the spec of a kind.

    Args:
        source: Text of the module. It is not executed: it may need another Python version and packages.
        kind: Kind of the custom resource, which a class of the module is named after.
    """
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    return _Reader(classes).field(classes[kind], "spec")


class _Reader:
    """Turns annotations into schemas, with the classes that they name."""

    def __init__(self, classes: Mapping[str, ast.ClassDef]) -> None:
        self._classes = classes

    def field(self, model: ast.ClassDef, name: str) -> Schema:
        return next(self._annotated(each.annotation)[1] for each in _fields(model) if _name(each) == name)

    def _model(self, model: ast.ClassDef) -> Schema:
        base = model.bases[0]
        if isinstance(base, ast.Subscript):  # RootModel[...]
            return self._annotated(base.slice)[1]
        properties, required = {}, []
        for each in _fields(model):
            alias, schema = self._annotated(each.annotation)
            properties[alias or _name(each)] = schema
            if each.value is None:
                required.append(alias or _name(each))
        allows_others = any("extra='allow'" in ast.unparse(node) for node in model.body if isinstance(node, ast.Assign))
        return {
            "type": "object",
            "properties": properties,
            **({"required": sorted(required)} if required else {}),
            **({} if allows_others or not properties else {"additionalProperties": False}),
        }

    def _annotated(self, annotation: ast.expr) -> tuple[str, Schema]:
        """Returns the alias, if any, and the schema of an annotation."""
        if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "Annotated":
            return "", self._type(annotation)
        assert isinstance(annotation.slice, ast.Tuple)
        of, field = annotation.slice.elts
        assert isinstance(field, ast.Call), ast.unparse(field)
        schema, alias = dict(self._type(of)), ""
        for keyword in field.keywords:
            value = ast.literal_eval(keyword.value)
            if keyword.arg == "alias":
                alias = value
            elif keyword.arg in _LENGTHS:
                schema[_LENGTHS[keyword.arg][schema["type"]]] = value
            elif keyword.arg == "pattern":
                schema["pattern"] = value.replace("^(?i)", "(?i)^")  # Python accepts flags at the start only
            else:
                schema[_KEYWORDS[keyword.arg or ""]] = value
        return alias, schema

    def _type(self, annotation: ast.expr) -> Schema:
        if isinstance(annotation, ast.BinOp):
            options = [each for each in _options(annotation) if ast.unparse(each) != "None"]  # an absent field
            schemas = [self._annotated(each)[1] for each in options]
            return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if isinstance(annotation, ast.Subscript):
            kind = ast.unparse(annotation.value)
            if kind == "Literal":
                return {"enum": [ast.literal_eval(each) for each in _elements(annotation)]}
            if kind == "list":
                return {"type": "array", "items": self._annotated(annotation.slice)[1]}
            if kind == "dict":
                return {"type": "object", "additionalProperties": self._annotated(_elements(annotation)[1])[1]}
            return self._annotated(annotation)[1]
        name = ast.unparse(annotation)
        return self._model(self._classes[name]) if name in self._classes else dict(_TYPES[name])


def _fields(model: ast.ClassDef) -> list[ast.AnnAssign]:
    annotated = [node for node in model.body if isinstance(node, ast.AnnAssign)]
    return [node for node in annotated if not ast.unparse(node.annotation).startswith("ClassVar")]


def _name(field: ast.AnnAssign) -> str:
    return ast.unparse(field.target)


def _options(union: ast.expr) -> list[ast.expr]:
    return [*_options(union.left), *_options(union.right)] if isinstance(union, ast.BinOp) else [union]


def _elements(subscript: ast.Subscript) -> list[ast.expr]:
    return subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]
