"""The commands. What they do is imported when they run: help has to be quick."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import batches, pipelines, records, runs
from gateway.cli.compare import compare
from gateway.cli.experts import experts
from gateway.cli.keys import keys
from gateway.cli.options import ApiKey, Files, Json, Mode, Out, Pin, PlanFile, Policy, Url
from gateway.cli.shell_completion import runs as run_ids
from gateway.cli.webhooks import webhooks

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(experts, name="experts")
app.add_typer(keys, name="keys")
app.add_typer(webhooks, name="webhooks")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            version = metadata.version("hugginggpt")
        except metadata.PackageNotFoundError:
            version = "(run from its folder, not installed)"
        typer.echo(f"hugginggpt {version}")
        raise typer.Exit


@app.callback()
def hugginggpt(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A sentence becomes a plan of model tasks, experts run them, an answer comes back.

    [bold]Try[/]

      hugginggpt ask "Read this aloud" --file sign.png --save aloud

      hugginggpt run aloud --file another.png

      hugginggpt up           then open http://127.0.0.1:8080

      hugginggpt tasks        what it can do

    Settings come from the environment: HUGGINGGPT_HOME (where it keeps things; ~/.hugginggpt), HUGGINGGPT_URL
    (the gateway to ask; http://127.0.0.1:8080), HUGGINGGPT_API_KEY (who asks), and LLM_BASE_URL, LLM_MODEL and
    LLM_API_KEY (an OpenAI-compatible endpoint that plans, chooses and answers; none).
    """


@app.command()
def ask(
    request: Annotated[
        str, typer.Argument(help="What to do, in words; - reads it from standard input. May be left out with --plan.")
    ] = "",
    *,
    file: Files = None,
    out: Out = Path("out"),
    plan: PlanFile = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no byte leaves the house. Unset: as the gateway is set up.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="local: only the house's own models; remote: only others; hybrid: others where its own are missing or "
            "fail. Unset: as the selector is set up."
        ),
    ] = None,
    license: Annotated[  # noqa: A002  # what the option is called
        list[str] | None,
        typer.Option("--license", metavar="LICENSE", help="Only models under it, such as apache-2.0; repeat it."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="When the run must have ended.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where an earlier run gave its result already.")
    ] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Only plan; hugginggpt approve lets the plan run, or another one.")
    ] = False,
    goes_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on from what was asked last from this home.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on from this run.", autocompletion=run_ids)
    ] = None,
    keep: Annotated[
        str,
        typer.Option("--save", metavar="NAME", help="Keep the plan under this name, to run it again on other files."),
    ] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Ask for something, watch it being done, get the answer and the files. What is piped in is sent as a file.

    [bold]Examples[/]

      hugginggpt ask "What does this letter say, and when is it due?" --file letter.pdf

      hugginggpt ask "How many people are in each photo?" --file 'party/*.jpg' --out faces

      cat notes.txt | hugginggpt ask "Summarise this"

      hugginggpt ask --continue "Find all dates in it"

      hugginggpt ask "Summarise this" --file notes.txt --json > run.json

      hugginggpt ask --plan run.json --file other-notes.txt

      hugginggpt ask "Read this aloud" --file sign.png --save read-aloud

    Exit status: 0 completed; 1 any other end; 2 asked wrongly; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import ask_command, terminal

    question = ask_command.Question(
        request,
        file or [],
        out,
        url=url,
        api_key=api_key,
        policy=policy and policy.value,
        mode=mode and mode.value,
        licenses=license or [],
        plan=plan,
        timeout=timeout,
        fresh=fresh,
        review=review,
        goes_on=goes_on,
        after=after,
        keep=keep,
        pin=pin,
    )
    with terminal.problems_told():
        answered = ask_command.ask(question, terminal.view(as_json=as_json))
        terminal.tell(answered, as_json=as_json)
        if problem := answered.unsaved or answered.unkept:
            raise problem
    raise typer.Exit(answered.status)


@app.command()
def up(
    experts: Annotated[str, typer.Option(metavar="NAMES", help="Experts to run on this machine, by comma.")] = "lite",
    orchestrators: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to answer HTTP. [127.0.0.1:8080]")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to answer gRPC. [127.0.0.1:50051]")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole log.")] = False,
) -> None:
    """Start the house here and keep it running until Ctrl-C.

    [bold]Examples[/]

      hugginggpt up

      hugginggpt up --orchestrators 2 --http 127.0.0.1:8090
    """
    from gateway.cli import terminal, up_command

    options = ["--experts", experts, "--orchestrators", str(orchestrators)]
    for name, value in (("--http", http), ("--grpc", grpc)):
        options += [name, value] if value else []
    with terminal.problems_told():
        status = up_command.stand(options, verbose=verbose)
    raise typer.Exit(status)


@app.command()
def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option("--root", metavar="FOLDER", help="A folder to use beside the client's roots; repeat it."),
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Serve an agent on standard input and output, by the Model Context Protocol.

    The agent starts it. Tools are those of the gateway at /mcp; files in the client's roots can be named by their path,
    and what is made can be saved there. HUGGINGGPT_API_KEY is sent where a gateway asks for a key. Where no gateway
    runs, local services are started for as long as the agent is connected.

    [bold]Example[/], in the client's settings:

      {"mcpServers": {"hugginggpt": {"command": "hugginggpt", "args": ["mcp"]}}}
    """
    from gateway.cli import terminal
    from gateway.mcp.bridge import serve

    with terminal.problems_told():
        serve.serve(url, api_key, root or [])


@app.command()
def tasks(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the kinds of task that can be planned now."""
    from gateway.cli import catalog, terminal

    with terminal.problems_told():
        catalog.show("/v1/tasks", catalog.tasks, url, api_key, as_json=as_json)


@app.command()
def models(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the models that can be chosen now."""
    from gateway.cli import catalog, terminal

    with terminal.problems_told():
        catalog.show("/v1/models", catalog.models, url, api_key, as_json=as_json)


@app.command()
def doctor(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Look for what is wrong, and say what helps. Exit status 1 if something is.

    An LLM endpoint that LLM_BASE_URL names is asked three or four questions, one of them as long as LLM_CONTEXT_TOKENS
    lets prompts be; what that took is told.
    """
    from gateway.cli import doctor as examination
    from gateway.cli import terminal

    with terminal.problems_told():
        well = examination.examine(url, api_key, as_json=as_json)
    raise typer.Exit(0 if well else 1)


@app.command("check-expert")
def check_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it answers.")],
    *,
    every_model: Annotated[
        bool, typer.Option("--every-model", help="Call every model of every task instead of one.")
    ] = False,
    policy: Annotated[
        Policy, typer.Option(help="open: also call external models and send them samples.")
    ] = Policy.LOCAL,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Limit of one call whose model is loaded.")
    ] = 20.0,
    load_timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Limit of loading a model.")] = 300.0,
    pid: Annotated[
        int | None, typer.Option(metavar="PROCESS", help="The expert's process: it gets SIGTERM to check its shutdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Call an expert as the orchestrator does, and check that it implements the expert interface correctly.

    Checks its description and health, each task with a small sample, invalid calls, deadlines, cancelled calls,
    overload and, with --pid, its shutdown. Samples and results go through the artifact store at ARTIFACTS_URL; the
    expert must use the same store.

    [bold]Examples[/]

      python -m experts.host my_expert &

      hugginggpt check-expert 127.0.0.1:50051 --pid $!

    Each check passes, gives a warning, fails, or is not run.

    Exit status: 0 no check failed and at least one task succeeded; 1 a check failed or no task succeeded; 2 invalid
    arguments.
    """
    from gateway.cli import terminal
    from gateway.cli.check_expert import check, command

    request = check.CheckRequest(address, every_model, policy is Policy.OPEN, timeout, load_timeout, pid)
    with terminal.problems_told():
        is_ok = command.check_and_print(request, as_json=as_json)
    raise typer.Exit(0 if is_ok else 1)


for run_command in (runs.watch, runs.runs, runs.approve, runs.cancel, runs.get, runs.delete):
    app.command()(run_command)
for pipeline_command in (pipelines.pipelines, pipelines.show, pipelines.run, pipelines.save, pipelines.export):
    app.command()(pipeline_command)
app.command("import")(pipelines.import_)
for other in (batches.batch, batches.resume, batches.batches, compare, records.record, records.verify, records.trace):
    app.command()(other)
