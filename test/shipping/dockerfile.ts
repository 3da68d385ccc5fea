// Reads a Dockerfile into stages and instructions, without any engine, and says what of a folder its .dockerignore lets in.
import { readdirSync } from 'node:fs';

export interface Instruction {
  /** In capitals. */
  readonly name: string;
  /** Flags such as `--from=x`, by name. */
  readonly flags: ReadonlyMap<string, string>;
  readonly rest: string;
}

export interface Stage {
  readonly base: string;
  readonly name: string | undefined;
  readonly instructions: readonly Instruction[];
}

/** Of the reference of the format: https://docs.docker.com/reference/dockerfile/ */
const KNOWN = new Set(
  'ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL USER VOLUME WORKDIR'.split(
    ' ',
  ),
);

/** @throws Error that names the line no builder would take */
export function readDockerfile(text: string): readonly Stage[] {
  const lines = text
    .split('\n')
    .filter((line) => !/^\s*(#|$)/.test(line))
    .join('\n')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n');
  const stages: { base: string; name: string | undefined; instructions: Instruction[] }[] = [];
  for (const line of lines) {
    const instruction = readInstruction(line);
    if (instruction.name === 'FROM') {
      const [, base = '', name] = /^(\S+)(?:\s+AS\s+(\S+))?$/i.exec(instruction.rest) ?? [];
      if (base === '') throw new Error(`no image: ${line}`);
      stages.push({ base, name, instructions: [] });
      continue;
    }
    const stage = stages.at(-1);
    if (stage !== undefined) stage.instructions.push(instruction);
    else if (instruction.name !== 'ARG') throw new Error(`before the first FROM: ${line}`);
  }
  return stages;
}

function readInstruction(line: string): Instruction {
  const [, word = '', after = ''] = /^\s*([A-Za-z]+)\s+(.*\S)\s*$/.exec(line) ?? [];
  const name = word.toUpperCase();
  if (!KNOWN.has(name)) throw new Error(`no instruction: ${line}`);
  const flags = new Map<string, string>();
  let rest = after;
  for (;;) {
    const flag = /^--([a-z-]+)(?:=(\S+))?\s+/.exec(rest);
    if (flag === null) return { name, flags, rest };
    flags.set(flag[1] ?? '', flag[2] ?? '');
    rest = rest.slice(flag[0].length);
  }
}

/** The words of an exec form; undefined where it is a line for a shell. */
export function execForm(rest: string): readonly string[] | undefined {
  try {
    const words: unknown = JSON.parse(rest);
    return Array.isArray(words) && words.every((word) => typeof word === 'string') ? words : undefined;
  } catch {
    return undefined;
  }
}

/** The last instruction of a stage with this name, which is the one that counts. */
export function last(stage: Stage, name: string): Instruction | undefined {
  return stage.instructions.findLast((instruction) => instruction.name === name);
}

/** Variables that a stage sets, by name. */
export function variables(stage: Stage): Readonly<Record<string, string>> {
  const pairs = stage.instructions
    .filter(({ name }) => name === 'ENV')
    .flatMap(({ rest }) => Array.from(rest.matchAll(/(\w+)=("[^"]*"|\S*)/g)));
  return Object.fromEntries(pairs.map(([, name = '', value = '']) => [name, value.replaceAll('"', '')]));
}

/** What at the top of `folder` a build can see. Only lists of names to let in, after `*`, are understood. */
export function buildContext(folder: string, ignoreFile: string): readonly string[] {
  const lines = ignoreFile.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  if (lines[0] !== '*' || !lines.slice(1).every((line) => /^![\w.-]+$/.test(line))) {
    throw new Error('.dockerignore is not a list of what to let in');
  }
  const allowed = new Set(lines.slice(1).map((line) => line.slice(1)));
  return readdirSync(folder).filter((name) => allowed.has(name));
}
