"""The subcommands of `clozeline`, one a module, each under the name `command`."""
