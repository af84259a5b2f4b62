"""The command line: parse, call, exit code."""


def main() -> None:
    """Run ``widegp`` with the arguments of this process and end it with its exit code."""
    from widegp.cli.app import app

    app(prog_name="widegp")
