"""The verb `completion`: a script for bash or zsh, generated from the parser. Pure.

The script is static: pressing Tab does not start Python. It contains the names of the workloads and
pipelines that exist when it is generated.
"""

import argparse
from collections.abc import Mapping, Sequence

SHELLS = ("bash", "zsh")

_SCRIPT = """\
# Completion of tidegauge for {shell}; made by: tidegauge completion {shell}
{before}_tidegauge() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb= word
    COMPREPLY=()
    local skipped=
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $skipped$word in
        --data) skipped=no: ;;
        {verbs_pattern}) verb=$word; break ;;
        *) skipped= ;;
        esac
    done
    case $verb:$previous in
    :--data) return ;;
{values}
    esac
    case $verb in
{words}
    *) COMPREPLY=($(compgen -W "{top}" -- "$current")) ;;
    esac
}}
complete -o default -F _tidegauge tidegauge ./tidegauge
"""
_ZSH_BEFORE = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


def script(shell: str, parser: argparse.ArgumentParser, names: Mapping[str, Sequence[str]]) -> str:
    """The script. names: possible values of arguments by their name in the parser (`pipeline`,
    …)."""
    verbs = verbs_of(parser)
    values, words = [], []
    for verb, verb_parser in verbs.items():
        options: list[str] = []
        positional: list[str] = []
        for action in verb_parser._actions:
            known = list(action.choices or names.get(f"{verb}.{action.dest}", ()))
            options += action.option_strings
            if action.option_strings and action.nargs != 0:
                pattern = " | ".join(f"{verb}:{option}" for option in action.option_strings)
                reply = f'COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$current"))'
                values.append(f"    {pattern}) {reply if known else ':'}; return ;;")
            elif not action.option_strings:
                positional += known
        offered = " ".join([*positional, *options])
        words.append(f'    {verb}) COMPREPLY=($(compgen -W "{offered}" -- "$current")) ;;')
    return _SCRIPT.format(
        shell=shell,
        before=_ZSH_BEFORE if shell == "zsh" else "",
        verbs_pattern=" | ".join(verbs),
        values="\n".join(values),
        words="\n".join(words),
        top=" ".join([*verbs, *(one for each in parser._actions for one in each.option_strings)]),
    )


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
