// `tollgate teams`: groups of holders. It works on the store directly, with or without a running gateway.
import { randomUUID } from 'node:crypto';
import { storableText } from '../../auth/stored-text.ts';
import type { TeamEvent, TeamSummary } from '../../store/organisation-record.ts';
import { type Arguments, readArguments } from '../arguments.ts';
import { type CommandIo, runSubcommand, write, writeList } from '../support-command.ts';
import { withStore } from '../support-desk.ts';
import { actorOf, labelChangeOptions, labelOptions, labelText, teamId } from './owner-options.ts';

const TEAMS_USAGE = `Usage: tollgate teams COMMAND [--config FILE]

  add NAME [--label NAME=VALUE]...
  list [--label NAME=VALUE]... [--json]
  show NAME [--json]                  a team and its history
  set NAME [--name NEW] [--label NAME=VALUE]... [--remove-label NAME]... [--reason TEXT]
  remove NAME                         only a team without holders; its usage stays

Holders join a team with tollgate holders set HOLDER --team NAME.
add, set and remove take --actor NAME for the history; the default is the user of the operating system.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'teams', usage: TEAMS_USAGE };
const CHANGE = { config: 'text', actor: 'text', reason: 'text', label: 'list' } as const;

/** @returns the exit code: 0 done, 1 not found or not possible, 2 wrong usage */
export function runTeams(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, { add, list, show, set, remove }, argv, io);
}

async function add(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, CHANGE, ['NAME']);
  const name = storableText(given.operands[0] ?? '', 'name');
  const labels = labelOptions(given);
  const by = {
    actor: actorOf(given, io),
    reason: reasonOf(given),
    at: new Date().toISOString(),
  };
  return withStore(given, io, 'create', async (store) => {
    const result = await store.organisation.addTeam({ id: randomUUID(), name, terms: {} }, by, labels);
    if (result.kind === 'name_taken') throw new Error('there is a team with this name already');
    await write(io.stdout, `Added the team ${name}.\n`);
    return 0;
  });
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', label: 'list', json: 'flag' });
  const labels = labelOptions(given);
  return withStore(given, io, 'must exist', async ({ organisation }) => {
    const isJson = given.flag('json');
    const page = (limit: number, last?: TeamSummary) =>
      organisation.listTeams({ labels, limit, ...(last && { after: last.name }) });
    const line = ({ name, holders, ...team }: TeamSummary) =>
      `${String(holders).padStart(7)}  ${name}${labelText(team.labels) && `  (${labelText(team.labels)})`}`;
    if (!isJson) await write(io.stdout, 'HOLDERS  TEAM\n');
    await writeList(io, isJson, page, fieldsOf, line);
    return 0;
  });
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['NAME']);
  return withStore(given, io, 'must exist', async (store) => {
    const id = await teamId(store, given.operands[0] ?? '');
    const [team, labels, events] = await Promise.all([
      store.organisation.findTeam({ id }),
      store.organisation.labelsOf(id),
      store.organisation.teamHistory(id),
    ]);
    if (team === undefined) throw new Error('the team was removed just now');
    if (given.flag('json')) {
      const shown = events.map(({ what, at, actor, reason }) => ({ what, at, actor, reason }));
      const fields = { name: team.name, labels, created_at: team.createdAt, events: shown };
      await write(io.stdout, `${JSON.stringify(fields, null, 2)}\n`);
      return 0;
    }
    const about = [
      `name        ${team.name}`,
      `created at  ${team.createdAt}`,
      `labels      ${labelText(labels) || '-'}`,
    ];
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
  const by = {
    actor: actorOf(given, io),
    reason: reasonOf(given),
    at: new Date().toISOString(),
  };
  return withStore(given, io, 'must exist', async (store) => {
    const id = await teamId(store, given.operands[0] ?? '');
    const result = await store.organisation.changeTeam(id, change, by);
    if (result.kind === 'name_taken') throw new Error('there is a team with this name already');
    if (result.kind === 'unknown') throw new Error('the team was removed just now');
    const outcome = result.kind === 'same' ? 'is as before' : 'is changed';
    await write(io.stdout, `The team ${result.team.name} ${outcome}.\n`);
    return 0;
  });
}

async function remove(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text' }, ['NAME']);
  return withStore(given, io, 'must exist', async (store) => {
    const outcome = await store.organisation.removeTeam(await teamId(store, given.operands[0] ?? ''));
    if (outcome === 'has_holders')
      throw new Error(
        'the team has holders: move them with tollgate holders set HOLDER --team NAME or --no-team',
      );
    await write(io.stdout, 'Removed the team.\n');
    return 0;
  });
}

function fieldsOf({ name, labels, holders, createdAt: created_at }: TeamSummary) {
  return { name, labels, holders, created_at };
}

function eventLine({ at, what, actor, reason }: TeamEvent): string {
  return `  ${at}  ${what}${actor === null ? '' : ` by ${actor}`}${reason === null ? '' : `: ${reason}`}`;
}

function reasonOf(given: Arguments<'reason'>): string | null {
  const reason = given.text('reason');
  return reason === undefined ? null : storableText(reason, 'reason');
}
