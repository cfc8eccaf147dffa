"""Schemas of custom resources are read from pydantic models and from compiled validators."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.manifests.schemas import EXTENSIONS, file_name
from tests.manifests.sources import compiled_validators, pydantic_models
from tests.manifests.sources.__main__ import PACKAGES, Package

MODELS = """
class Mode(RootModel[Annotated[str, Field(pattern="^(?i)[a-z]+$")]]):
    pass

class Trigger(BaseModel):
    class Builder:
        ignored: int

    metadata: dict[str, str]
    "What to query."
    value: int | str | None = None

class ScalerSpec(BaseModel):
    mode: Annotated[Mode | None, Field(alias="theMode")] = None
    kind: Literal["a", "b"] | None = None
    least: Annotated[int | None, Field(alias="atLeast", ge=1)] = None
    triggers: Annotated[list[Trigger], Field(min_length=1)]

class Free(BaseModel):
    model_config = ConfigDict(extra='allow')
    name: str

class Scaler(Resource):
    plural: ClassVar[str] = "scalers"
    kind: Literal["Scaler"] = "Scaler"
    spec: ScalerSpec

class Open(Resource):
    spec: Free
"""

ROUTE = """import{formats}from"@models/validate";
export const validate=validate0;import{validate as validate3}from"./Port.js";
let pattern0=RegExp("^a{2}$","u");function validate1(data,{instancePath=""}={}){let vErrors=null,errors=0;
if(!pattern0.test(data)){let err0={instancePath,schemaPath:"#/pattern",keyword:"pattern",params:{pattern:"^a{2}$"}};}
return validate1.errors=vErrors,0===errors}import{validate as validate9}from"@other/Meta";
function validate2(data,{instancePath=""}={}){if(Array.isArray(data)){for(let i0=0;i0<len0;i0++)validate3(data[i0],{i})}
else{let err0={keyword:"type",params:{type:"array"}};}return validate2.errors=vErrors,0===errors}let e0=["X","Y"];
function validate4(data,{instancePath=""}={}){let err1={keyword:"enum",params:{allowedValues:e0}};return 0}
function validate0(data,{instancePath=""}={}){let err0={keyword:"required",params:{missingProperty:"name"}};
validate5(data,{instancePath});validate1(data.name,{i});validate2(data["the-ports"],{i});validate4(data.kind,{i});
validate9(data.meta,{i});let err1={keyword:"type",params:{type:"object"}};return validate0.errors=vErrors}
function validate5(data,{instancePath=""}={}){validate6(data.labels,{i});return validate5.errors=vErrors}
function validate6(data,{instancePath=""}={}){for(let key0 in data)validate1(data[key0],{i});return 0}"""
PORT = """export const validate=validate0;function validate0(data,{instancePath=""}={}){
let err1={keyword:"maximum",params:{comparison:"<=",limit:65535}};let err2={keyword:"format",params:{format:"int32"}};
return validate0.errors=vErrors,0===errors}"""


def test_pydantic_models_become_a_schema() -> None:
    trigger = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            "value": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "required": ["metadata"],
        "additionalProperties": False,
    }
    assert pydantic_models.read_schema(MODELS, "Scaler") == {
        "type": "object",
        "properties": {
            "theMode": {"type": "string", "pattern": "(?i)^[a-z]+$"},
            "kind": {"enum": ["a", "b"]},
            "atLeast": {"type": "integer", "minimum": 1},
            "triggers": {"type": "array", "items": trigger, "minItems": 1},
        },
        "required": ["triggers"],
        "additionalProperties": False,
    }


def test_pydantic_model_may_allow_other_fields() -> None:
    assert "additionalProperties" not in pydantic_models.read_schema(MODELS, "Open")


def test_compiled_validators_become_a_schema(tmp_path: Path) -> None:
    (tmp_path / "Route.js").write_text(ROUTE, encoding="utf-8")
    (tmp_path / "Port.js").write_text(PORT, encoding="utf-8")
    name = {"pattern": "^a{2}$"}
    assert compiled_validators.read_schema(tmp_path / "Route.js") == {
        "type": "object",
        "properties": {
            "labels": {"additionalProperties": name},
            "name": name,
            "the-ports": {"type": "array", "items": {"maximum": 65535}},
            "kind": {"enum": ["X", "Y"]},
            "meta": {"type": "object"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_unknown_keyword_of_a_validator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Port.js").write_text(PORT.replace("format", "uniqueItems"), encoding="utf-8")
    with pytest.raises(AssertionError, match="uniqueItems"):
        compiled_validators.read_schema(tmp_path / "Port.js")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_committed_schemas_are_of_the_packages_version(package: Package) -> None:
    for kind in package.kinds:
        schema = json.loads((EXTENSIONS / file_name(package.api_version, kind)).read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        assert schema["$comment"] == package.description
