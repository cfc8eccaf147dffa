"""Request bodies, responses and examples of the file and conversation routes."""

from typing import Any

from gateway.openapi import examples
from gateway.openapi.document import ARTIFACT, answer

FILE_ID = "file_5d1c2f8e7a9b40d3c6e1f2a3"
RUN_ID = examples.RUN_ID

_FILE = {
    "id": FILE_ID,
    "object": "file",
    "bytes": 88244,
    "created_at": 1900000000,
    "filename": "speech.wav",
    "purpose": "user_data",
    "status": "processed",
    "artifact": examples.ARTIFACT,
}
_CONVERSATION = {
    "id": RUN_ID,
    "object": "conversation",
    "created_at": 1900000000,
    "metadata": {},
    "title": "Read the text in this image aloud",
}
_PAGE = {"object": "list", "data": [_FILE], "has_more": False, "first_id": FILE_ID, "last_id": FILE_ID}

CREATE_FILE: dict[str, Any] = {
    "responses": {200: answer("The stored file.", "File", _FILE)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "dependentRequired": {"expires_after[anchor]": ["expires_after[seconds]"]},
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "purpose": {"type": "string", "default": "user_data"},
                            "expires_after[anchor]": {"const": "created_at"},
                            "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
                        },
                    },
                    "example": {"file": "(bytes of speech.wav)", "purpose": "user_data"},
                }
            },
        }
    },
}
FILES: dict[str, Any] = {"responses": {200: answer("A page of files.", "FileList", _PAGE)}}
FILE: dict[str, Any] = {"responses": {200: answer("The file.", "File", _FILE)}}
DELETED_FILE: dict[str, Any] = {
    "responses": {200: answer("The file is deleted.", "Deleted", {"id": FILE_ID, "object": "file", "deleted": True})}
}
CONTENT: dict[str, Any] = ARTIFACT
CONVERSATIONS: dict[str, Any] = {
    "responses": {
        200: answer("A page of conversations.", "ConversationList", {"object": "list", "data": [_CONVERSATION]}),
    }
}
CONVERSATION: dict[str, Any] = {
    "responses": {200: answer("The conversation.", "Conversation", {**_CONVERSATION, "runs": [examples.RUNNING]})}
}
DELETED_CONVERSATION: dict[str, Any] = {
    "responses": {
        200: answer(
            "The conversation is deleted.",
            "Deleted",
            {"id": RUN_ID, "object": "conversation.deleted", "deleted": True},
        )
    }
}
