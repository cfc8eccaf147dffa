"""The commands. Their implementation is imported only when they run, so that --help is fast."""

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


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        try:
            version = metadata.version("hugginggpt")
        except metadata.PackageNotFoundError:
            version = "(running from its source folder, not installed)"
        typer.echo(f"hugginggpt {version}")
        raise typer.Exit


@app.callback()
def hugginggpt(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Turn a request into a plan of model tasks, run the tasks, and return an answer.

    [bold]Examples[/]

      hugginggpt ask "Read this aloud" --file sign.png --save aloud

      hugginggpt run aloud --file another.png

      hugginggpt up           then open http://127.0.0.1:8080

      hugginggpt tasks        lists the available tasks

    Environment variables, with their defaults: HUGGINGGPT_HOME (folder for data; ~/.hugginggpt), HUGGINGGPT_URL
    (address of the gateway; http://127.0.0.1:8080), HUGGINGGPT_API_KEY (API key; none), and LLM_BASE_URL, LLM_MODEL
    and LLM_API_KEY (an OpenAI-compatible endpoint for planning, model selection and answers; none).
    """


@app.command()
def ask(
    request: Annotated[
        str, typer.Argument(help="The task in plain language; - reads it from standard input. Optional with --plan.")
    ] = "",
    *,
    file: Files = None,
    out: Out = Path("out"),
    plan: PlanFile = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no data leaves the deployment. Unset: the gateway's default.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="local: only models of the deployment; remote: only external models; hybrid: external models where "
            "the deployment has none or its own fail. Unset: the selector's default."
        ),
    ] = None,
    license: Annotated[  # noqa: A002  # name of the option
        list[str] | None,
        typer.Option("--license", metavar="LICENSE", help="Only models with this license (SPDX). Repeatable."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of the run.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where the result of an earlier run could be reused.")
    ] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Only plan; hugginggpt approve then runs this plan or another one.")
    ] = False,
    continues_last: Annotated[
        bool, typer.Option("--continue", "-c", help="Continue the conversation of the last request.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue the conversation of this run.", autocompletion=run_ids)
    ] = None,
    save_as: Annotated[
        str,
        typer.Option("--save", metavar="NAME", help="Save the plan as a pipeline, to run it on other files."),
    ] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Send a request, follow the run, print the answer and save the files. Piped input is sent as a file.

    [bold]Examples[/]

      hugginggpt ask "What does this letter say, and when is it due?" --file letter.pdf

      hugginggpt ask "How many people are in each photo?" --file 'party/*.jpg' --out faces

      cat notes.txt | hugginggpt ask "Summarise this"

      hugginggpt ask --continue "Find all dates in it"

      hugginggpt ask "Summarise this" --file notes.txt --json > run.json

      hugginggpt ask --plan run.json --file other-notes.txt

      hugginggpt ask "Read this aloud" --file sign.png --save read-aloud

    Exit status: 0 completed; 1 any other end; 2 invalid arguments; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import ask_command, terminal

    ask_request = ask_command.AskRequest(
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
        continues_last=continues_last,
        after=after,
        save_as=save_as,
        pin=pin,
    )
    with terminal.problems_reported():
        answered = ask_command.ask(ask_request, terminal.view(as_json=as_json))
        terminal.print_result(answered, as_json=as_json)
        if problem := answered.save_problem or answered.pipeline_problem:
            raise problem
    raise typer.Exit(answered.status)


@app.command()
def up(
    experts: Annotated[str, typer.Option(metavar="NAMES", help="Experts to run, separated by commas.")] = "lite",
    orchestrators: Annotated[int, typer.Option(min=1, help="Number of orchestrator processes.")] = 1,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="HTTP address to listen on. [127.0.0.1:8080]")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="gRPC address to listen on. [127.0.0.1:50051]")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole log.")] = False,
) -> None:
    """Start all services on this machine and run them until Ctrl-C.

    [bold]Examples[/]

      hugginggpt up

      hugginggpt up --orchestrators 2 --http 127.0.0.1:8090
    """
    from gateway.cli import terminal, up_command

    options = ["--experts", experts, "--orchestrators", str(orchestrators)]
    for name, value in (("--http", http), ("--grpc", grpc)):
        options += [name, value] if value else []
    with terminal.problems_reported():
        status = up_command.run_in_foreground(options, verbose=verbose)
    raise typer.Exit(status)


@app.command()
def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root", metavar="FOLDER", help="A folder to allow in addition to the client's roots. Repeatable."
        ),
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Serve the Model Context Protocol (MCP) on standard input and output.

    An MCP client starts this command. Its tools are those of the gateway at /mcp. Files in the client's roots can be
    given by path, and output files can be saved there. HUGGINGGPT_API_KEY is sent to gateways that require a key. If no
    gateway runs, local services are started for as long as the client is connected.

    [bold]Example[/] configuration of an MCP client:

      {"mcpServers": {"hugginggpt": {"command": "hugginggpt", "args": ["mcp"]}}}
    """
    from gateway.cli import terminal
    from gateway.mcp.bridge import serve

    with terminal.problems_reported():
        serve.serve(url, api_key, root or [])


@app.command()
def tasks(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the available tasks."""
    from gateway.cli import catalog, terminal

    with terminal.problems_reported():
        catalog.show("/v1/tasks", catalog.tasks, url, api_key, as_json=as_json)


@app.command()
def models(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the available models."""
    from gateway.cli import catalog, terminal

    with terminal.problems_reported():
        catalog.show("/v1/models", catalog.models, url, api_key, as_json=as_json)


@app.command()
def doctor(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Check the installation and the services, and suggest remedies. Exit status 1 if a check fails.

    If LLM_BASE_URL is set, the endpoint gets three or four requests, one of them as long as LLM_CONTEXT_TOKENS allows;
    the tokens they use are reported.
    """
    from gateway.cli import doctor as diagnostics
    from gateway.cli import terminal

    with terminal.problems_reported():
        is_ok = diagnostics.diagnose(url, api_key, as_json=as_json)
    raise typer.Exit(0 if is_ok else 1)


@app.command("check-expert")
def check_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the expert.")],
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
    with terminal.problems_reported():
        is_ok = command.check_and_print(request, as_json=as_json)
    raise typer.Exit(0 if is_ok else 1)


for run_command in (runs.watch, runs.runs, runs.approve, runs.cancel, runs.get, runs.delete):
    app.command()(run_command)
for pipeline_command in (pipelines.pipelines, pipelines.show, pipelines.run, pipelines.save, pipelines.export):
    app.command()(pipeline_command)
app.command("import")(pipelines.import_)
for other in (batches.batch, batches.resume, batches.batches, compare, records.record, records.verify, records.trace):
    app.command()(other)
