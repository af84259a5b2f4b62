"""The command line: parse, call, exit code."""


def main() -> None:
    """Run ``widegp`` with the arguments of this process and end it with its exit code."""
    import sys

    from widegp.extras import missing_words

    try:
        from widegp.cli.app import app
    except ModuleNotFoundError as error:
        words = missing_words(error.name or "")
        if words is None:
            raise
        print(f"Error: {words}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="widegp")
