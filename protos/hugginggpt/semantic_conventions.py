"""Names of spans, attributes and metrics, in one module because OpenTelemetry's conventions for AI still change.

Names that OpenTelemetry does not define start with `hugginggpt.`. No attribute holds content: no text of a request,
prompt or response, and no file name.
"""

# ---------------------------------------------------------------- spans

INVOKE_WORKFLOW, PLAN, CHAT, EXECUTE_TOOL = "invoke_workflow", "plan", "chat", "execute_tool"
"""Operations of OpenTelemetry: a run, a plan, an LLM call, a task. See span_name."""

RUN_BATCH, LOAD_MODEL, TAKE_OVER = "run_batch", "load_model", "take_over"
"""Further operations: a batch on a device, loading a model, the takeover of a run by another orchestrator."""

# ---------------------------------------------------------------- events

ATTEMPT_FAILED, WAITING, FELL_BACK = "attempt_failed", "waiting", "fell_back"
CIRCUIT_OPENED, CIRCUIT_CLOSED = "circuit_opened", "circuit_closed"

# ---------------------------------------------------------------- attributes

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
WORKFLOW = "gen_ai.workflow.name"
CONVERSATION = "gen_ai.conversation.id"
TOOL, TOOL_CALL = "gen_ai.tool.name", "gen_ai.tool.call.id"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
TEMPERATURE, MAX_TOKENS, STREAM = "gen_ai.request.temperature", "gen_ai.request.max_tokens", "gen_ai.request.stream"
OUTPUT_TYPE = "gen_ai.output.type"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  # of an LLM's tokens
ERROR = "error.type"
SERVER, SERVER_PORT = "server.address", "server.port"
MCP_METHOD = "mcp.method.name"
METHOD, ROUTE, STATUS = "http.request.method", "http.route", "http.response.status_code"

COST = "hugginggpt.usage.cost"
RUN, STATE = "hugginggpt.run.id", "hugginggpt.state"
TASK, TASK_ID, ATTEMPT = "hugginggpt.task.name", "hugginggpt.task.id", "hugginggpt.attempt"
MODEL, EXPERT, DEVICE = "hugginggpt.model.id", "hugginggpt.expert", "hugginggpt.device"
CONTROLLER = "hugginggpt.controller"
ROLE = "hugginggpt.llm.role"
GOAL, TASKS = "hugginggpt.plan.goal", "hugginggpt.plan.tasks"
NEXT, DELAY = "hugginggpt.next", "hugginggpt.delay_seconds"
CIRCUIT = "hugginggpt.circuit"
ITEMS = "hugginggpt.batch.items"

# ---------------------------------------------------------------- metrics

HTTP_SECONDS, RPC_SECONDS = "http.server.request.duration", "rpc.server.call.duration"
RUN_SECONDS = "gen_ai.workflow.duration"
LLM_SECONDS, LLM_TOKENS = "gen_ai.client.operation.duration", "gen_ai.client.token.usage"
LLM_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"


def span_name(operation: str, target: str) -> str:
    """A span's name: the operation and its target, such as `chat gpt-5`."""
    return f"{operation} {target}" if target else operation
