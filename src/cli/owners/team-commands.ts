// `tollgate teams`: groups of holders. It works on the store directly, with or without a running gateway.
import { randomUUID } from 'node:crypto';
import { storableText } from '../../auth/stored-text.ts';
import { NO_TERMS, type Terms } from '../../config/terms.ts';
import { teamFields } from '../../console/record-fields.ts';
import type { TeamEvent, TeamResult, TeamSummary } from '../../store/organisation-record.ts';
import { type Arguments, readArguments } from '../arguments.ts';
import { runSubcommand, writeList } from '../support-command.ts';
import { fieldLines, withStore } from '../support-desk.ts';
import { type CommandIo, write } from '../terminal.ts';
import { ownText, termsFields, termsTexts } from '../terms-fields.ts';
import { LIMIT_OPTIONS, LIMITS_HELP, limitOptions } from './limit-options.ts';
import { authorOf, labelChangeOptions, labelOptions, labelText, teamId } from './owner-options.ts';

const TEAMS_USAGE = `Usage: tollgate teams COMMAND [--config FILE]

  add NAME [--label NAME=VALUE]... [LIMITS] [--json]
  list [--label NAME=VALUE]... [--json]
  show NAME [--json]                  a team and its history
  set NAME [--name NEW] [--label NAME=VALUE]... [--remove-label NAME]... [LIMITS] [--reason TEXT] [--json]
  remove NAME                         only a team without holders; its usage stays

LIMITS are --limit LIMIT, --budget BUDGET, each any number of times, and --soft SHARES: all holders of the team share them.
${LIMITS_HELP}Holders join a team with tollgate holders set HOLDER --team NAME.
add, set and remove take --actor NAME for the history; the default is the user of the operating system.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'teams', usage: TEAMS_USAGE };
const CHANGE = {
  config: 'text',
  actor: 'text',
  reason: 'text',
  label: 'list',
  ...LIMIT_OPTIONS,
  json: 'flag',
} as const;

/** @returns the exit code: 0 done, 1 not found or not possible, 2 wrong usage */
export function runTeams(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, { add, list, show, set, remove }, argv, io);
}

async function add(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, CHANGE, ['NAME']);
  const name = storableText(given.operands[0] ?? '', 'name');
  const labels = labelOptions(given);
  const by = authorOf(given, io);
  return withStore(given, io, 'create', async (store, { dynamic }) => {
    const terms = limitOptions(given, NO_TERMS, { kind: 'team', config: dynamic }, false) ?? NO_TERMS;
    const result = await store.organisation.addTeam({ id: randomUUID(), name, terms }, by, labels);
    return writeResult(given, io, 'added', result);
  });
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', label: 'list', json: 'flag' });
  const labels = labelOptions(given);
  return withStore(given, io, 'must exist', async ({ organisation }) => {
    const isJson = given.flag('json');
    const page = (limit: number, last?: TeamSummary) =>
      organisation.listTeams({ labels, limit, ...(last && { after: last.name }) });
    const line = ({ name, holders, terms, ...team }: TeamSummary) =>
      `${String(holders).padStart(7)}  ${name}${labelText(team.labels) && `  (${labelText(team.labels)})`}${ownText(terms)}`;
    if (!isJson) await write(io.stdout, 'HOLDERS  TEAM\n');
    await writeList(io, isJson, page, teamFields, line);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['NAME']);
  return withStore(given, io, 'must exist', async (store, { dynamic }) => {
    const id = await teamId(store, given.operands[0] ?? '');
    const [team, labels, events] = await Promise.all([
      store.organisation.findTeam({ id }),
      store.organisation.labelsOf(id),
      store.organisation.teamHistory(id),
    ]);
    if (team === undefined) throw new Error('the team was removed just now');
    if (given.flag('json')) {
      const shown = events.map(({ what, at, actor, reason }) => ({ what, at, actor, reason }));
      const { limits, budget } = termsFields(team.terms);
      const own = { name: team.name, labels, limits, budget };
      const fields = { ...own, created_at: team.createdAt, events: shown };
      await write(io.stdout, `${JSON.stringify(fields, null, 2)}\n`);
      return 0;
    }
    const { limits, budget } = termsTexts(team.terms, undefined, dynamic.currency);
    const own = { labels: labelText(labels) || '-', limits, budget };
    const about = fieldLines({ name: team.name, created_at: team.createdAt, ...own }, 12);
    await write(io.stdout, `${[...about, 'events', ...events.map(eventLine)].join('\n')}\n`);
    return 0;
  });
}

async function set(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { ...CHANGE, name: 'text', 'remove-label': 'list' }, ['NAME']);
  const named = given.text('name');
  const change = {
    ...(named !== undefined && { name: storableText(named, 'name') }),
    labels: labelChangeOptions(given),
  };
  const by = authorOf(given, io);
  return withStore(given, io, 'must exist', async (store, { dynamic }) => {
    const id = await teamId(store, given.operands[0] ?? '');
    const team = await store.organisation.findTeam({ id });
    const termsOf = (before: Terms) => limitOptions(given, before, { kind: 'team', config: dynamic }, false);
    const isLimited = team !== undefined && termsOf(team.terms) !== undefined;
    const terms = (before: Terms) => termsOf(before) ?? before;
    const result = await store.organisation.changeTeam(id, { ...change, ...(isLimited && { terms }) }, by);
    return writeResult(given, io, 'changed', result);
  });
}

async function remove(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', actor: 'text', reason: 'text' }, ['NAME']);
  const by = authorOf(given, io);
  return withStore(given, io, 'must exist', async (store) => {
    const outcome = await store.organisation.removeTeam(await teamId(store, given.operands[0] ?? ''), by);
    if (outcome === 'has_holders')
      throw new Error(
        'the team has holders: move them with tollgate holders set HOLDER --team NAME or --no-team',
      );
    await write(io.stdout, 'Removed the team.\n');
    return 0;
  });
}

const OUTCOMES = { added: 'is added', changed: 'is changed', same: 'is as before' } as const;

async function writeResult(
  given: Arguments<'json'>,
  { stdout }: CommandIo,
  done: 'added' | 'changed',
  result: TeamResult,
): Promise<number> {
  if (result.kind === 'name_taken') throw new Error('there is a team with this name already');
  if (result.kind === 'unknown') throw new Error('the team was removed just now');
  const outcome = result.kind === 'same' ? 'same' : done;
  const { name, terms } = result.team;
  const { limits, budget } = termsFields(terms);
  const fields = { outcome, team: name, limits, budget };
  const text = `The team ${name} ${OUTCOMES[outcome]}.`;
  await write(stdout, `${given.flag('json') ? JSON.stringify(fields) : text}\n`);
  return 0;
}

function eventLine({ at, what, actor, reason }: TeamEvent): string {
  return `  ${at}  ${what}${actor === null ? '' : ` by ${actor}`}${reason === null ? '' : `: ${reason}`}`;
}
