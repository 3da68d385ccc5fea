// `tollgate completion SHELL`: a script that completes commands, options and their known values. All words are in the script, so that a
// key press starts no program.
import type { Command } from 'commander';
import { oneOf } from './arguments.ts';
import { command, type Definition } from './command.ts';
import { pathOf } from './command-line.ts';
import { write } from './terminal.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** @param tree the whole program */
export function completionCommand(tree: () => Promise<Command>): Definition {
  return command('completion', 'print a script that completes commands in a shell', {
    detail: `SHELL is ${SHELLS.join(', ')}.`,
    operand: { name: 'SHELL', about: 'the shell that runs the script', choices: SHELLS },
    options: {},
    examples: [
      'completion bash > /etc/bash_completion.d/tollgate',
      'completion zsh > "$fpath[1]/_tollgate"',
      'completion fish > ~/.config/fish/completions/tollgate.fish',
    ],
    run: async (_given, io, operand) => {
      const shell = oneOf(operand, SHELLS, 'shell');
      await write(io.stdout, SCRIPTS[shell](statesOf(await tree())));
      return 0;
    },
  });
}

interface Word {
  readonly name: string;
  readonly about: string;
}

/** An option with a value. Its values are known words, or a file. */
interface ValueOption extends Word {
  readonly values: readonly string[];
  readonly isFile: boolean;
}

/** What can follow a command. */
interface State {
  /** `tollgate keys issue` */
  readonly path: string;
  readonly words: readonly Word[];
  readonly flags: readonly Word[];
  readonly valued: readonly ValueOption[];
}

function statesOf(of: Command): readonly State[] {
  const commands = of.commands.map((each) => ({ name: each.name(), about: each.summary() }));
  const operands = of.registeredArguments.flatMap(({ argChoices = [], description }) =>
    argChoices.map((name) => ({ name, about: description })),
  );
  const options = of.createHelp().visibleOptions(of);
  const state: State = {
    path: pathOf(of),
    words: [...commands, ...operands],
    flags: options.flatMap(({ long, required, description: about }) =>
      required ? [] : [{ name: long ?? '', about }],
    ),
    valued: options.flatMap(({ long, required, description: about, argChoices: values = [], flags }) =>
      required ? [{ name: long ?? '', about, values, isFile: flags.endsWith('<FILE>') }] : [],
    ),
  };
  return [state, ...of.commands.flatMap(statesOf)];
}

const SCRIPTS: Readonly<Record<Shell, (states: readonly State[]) => string>> = {
  bash: (states) => `# tollgate completion for bash
_tollgate() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=tollgate i
  COMPREPLY=()
  # Bash takes the = of --name=value for a word.
  if [[ $cur == = ]]; then cur=
  elif [[ $prev == = ]]; then prev=\${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
${pathsOf(states)} at="$at \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at $prev" in
${valuesOf(states, (values) => `COMPREPLY=($(compgen -W ${quote(values.join(' '))} -- "$cur")); return`, `local IFS=$'\\n'; COMPREPLY=($(compgen -f -- "$cur")); return`)}
  esac
  case $at in
${states.map((state) => `    ${quote(state.path)}) COMPREPLY=($(compgen -W ${quote(allWords(state).join(' '))} -- "$cur")) ;;`).join('\n')}
  esac
}
complete -o filenames -F _tollgate tollgate
`,
  zsh: (states) => `#compdef tollgate
_tollgate() {
  local at=tollgate word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
${pathsOf(states)} at="$at $word" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${valuesOf(states, (values) => `compadd -- ${values.map(quote).join(' ')}; return`, '_files; return')}
  esac
  case $at in
${states.map((state) => `    ${quote(state.path)}) found=(${[...state.words, ...state.flags, ...state.valued].map(({ name, about }) => quote(`${name.replaceAll(':', '\\:')}:${about}`)).join(' ')}) ;;`).join('\n')}
  esac
  _describe tollgate found
}
if [[ $funcstack[1] == _tollgate ]]; then _tollgate "$@"; else compdef _tollgate tollgate; fi
`,
  fish: (states) => `# tollgate completion for fish
function __tollgate_at
  set -l at tollgate
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case ${paths(states)}
        set at "$at $word"
    end
  end
  test "$at" = "$argv"
end
complete -c tollgate -f
${states.flatMap(fishLines).join('\n')}
`,
};

const allWords = ({ words, flags, valued }: State) => [...words, ...flags, ...valued].map(({ name }) => name);
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
/** The paths of all commands but the program's own. */
const paths = (states: readonly State[], separator = ' ') =>
  states
    .slice(1)
    .map(({ path }) => quote(path))
    .join(separator);
const pathsOf = (states: readonly State[]) => `      ${paths(states, '|')})`;

/** The cases of options that take a value. A value that is not known completes to nothing. */
function valuesOf(states: readonly State[], known: (values: readonly string[]) => string, file: string) {
  return states
    .flatMap(({ path, valued }) =>
      valued.map(({ name, values, isFile }) => {
        const then = isFile ? file : values.length === 0 ? 'return' : known(values);
        return `    ${quote(`${path} ${name}`)}) ${then} ;;`;
      }),
    )
    .join('\n');
}

function fishLines({ path, words, flags, valued }: State): readonly string[] {
  const fish = (text: string) => `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
  const start = `complete -c tollgate -n ${fish(`__tollgate_at ${path}`)}`;
  const lines = [
    ...words.map(({ name, about }) => `-a ${name} -d ${fish(about)}`),
    ...flags.map(({ name, about }) => `-l ${name.slice(2)} -d ${fish(about)}`),
    ...valued.map(({ name, about, values, isFile }) => {
      const value = isFile ? '-rF' : values.length === 0 ? '-x' : `-x -a ${fish(values.join(' '))}`;
      return `-l ${name.slice(2)} ${value} -d ${fish(about)}`;
    }),
  ];
  return lines.map((line) => `${start} ${line}`);
}
