// `tollgate teams`: groups of holders. It works on the store directly, with or without a running gateway.
import { randomUUID } from 'node:crypto';
import { storableText } from '../../auth/stored-text.ts';
import { NO_TERMS, type Terms } from '../../config/terms.ts';
import { wholeTeam } from '../../console/owner-records.ts';
import { teamFields, termsFields } from '../../console/record-fields.ts';
import type { TeamResult, TeamSummary } from '../../store/organisation-record.ts';
import { UsageError } from '../program/arguments.ts';
import { command, group, type Operand, SHOW_OPTIONS, text } from '../program/command.ts';
import { print, writeList } from '../program/table.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { fieldLines, withStore } from '../support-desk.ts';
import { termsTexts } from '../terms-fields.ts';
import { LIMIT_OPTIONS, LIMITS_HELP, limitOptions } from './limit-options.ts';
import {
  authorOf,
  authorText,
  CHANGE_OPTIONS,
  LABEL,
  LABEL_FILTER,
  labelChangeOptions,
  labelOptions,
  labelText,
  REMOVED_LABEL,
  requireLabels,
  shownOwner,
  teamNamed,
  writeMissingLabels,
} from './owner-options.ts';

const CHANGE = {
  label: LABEL,
  ...LIMIT_OPTIONS,
  ...CHANGE_OPTIONS,
} as const;
const TEAM: Operand = { name: 'NAME', about: 'the name of the team' };
const LIMITS_OF_TEAM = `All holders of the team share its limits. ${LIMITS_HELP}`;

const add = command('add', 'add a team', {
  detail: `${LIMITS_OF_TEAM} Holders join with tollgate holders set HOLDER --team NAME.`,
  operand: TEAM,
  options: CHANGE,
  examples: ['teams add search --label cost=42 --budget 500/month --soft 80%'],
  run: (given, io, operand) => {
    const name = readTeamName(operand);
    const labels = labelOptions(given);
    const by = authorOf(given, io);
    return withStore(given, io, 'create', async (store, { dynamic }) => {
      const terms = limitOptions(given, NO_TERMS, { kind: 'team', config: dynamic }, false) ?? NO_TERMS;
      const result = await store.organisation.addTeam({ id: randomUUID(), name, terms }, by, labels);
      return writeResult(given.json, io, 'added', result);
    });
  },
});

const list = command('list', 'list teams', {
  options: {
    name: text('TEXT', 'only those whose names begin so'),
    label: LABEL_FILTER,
    ...SHOW_OPTIONS,
  },
  examples: ['teams list', 'teams list --label cost=4* --json'],
  run: (given, io) => {
    const labels = labelOptions(given);
    const filter = { labels, ...(given.name !== undefined && { name: given.name }) };
    return withStore(given, io, 'must exist', async (store) => {
      await requireLabels(store, Object.keys(labels));
      const page = (limit: number, last?: TeamSummary) =>
        store.organisation.listTeams({ ...filter, limit, after: last?.name });
      return writeList(io, given.json, page, teamFields, COLUMNS, shownOwner);
    });
  },
});

const show = command('show', 'show a team and its history', {
  operand: TEAM,
  options: SHOW_OPTIONS,
  examples: ['teams show search', 'teams show search --json'],
  run: (given, io, operand) =>
    withStore(given, io, 'must exist', async (store, { dynamic }) => {
      const team = await teamNamed(store, operand);
      const record = await wholeTeam(store, team);
      const { name, created_at } = record;
      const { limits, budget } = termsTexts(team.terms, undefined, dynamic.currency);
      const texts = { labels: labelText(record.labels) || '-', limits, budget };
      const about = fieldLines({ name, created_at, ...texts }, 12);
      const events = record.events.map((event) => `  ${event.at}  ${event.what}${authorText(event)}`);
      return print(io, given.json, record, [...about, 'events', ...events]);
    }),
});

const set = command('set', 'change a team', {
  detail: LIMITS_OF_TEAM,
  operand: TEAM,
  options: { name: text('NEW', 'another name'), removeLabel: REMOVED_LABEL, ...CHANGE },
  examples: ['teams set search --name "Search and ads"', 'teams set search --budget none/month'],
  run: (given, io, operand) => {
    const change = {
      ...(given.name !== undefined && { name: readTeamName(given.name) }),
      labels: labelChangeOptions(given),
    };
    const by = authorOf(given, io);
    return withStore(given, io, 'must exist', async (store, { dynamic }) => {
      const team = await teamNamed(store, operand);
      await writeMissingLabels(store, team.id, given, io);
      const termsOf = (before: Terms) =>
        limitOptions(given, before, { kind: 'team', config: dynamic }, false);
      const isLimited = termsOf(team.terms) !== undefined;
      const terms = (before: Terms) => termsOf(before) ?? before;
      const changed = { ...change, ...(isLimited && { terms }) };
      const result = await store.organisation.changeTeam(team.id, changed, by);
      return writeResult(given.json, io, 'changed', result);
    });
  },
});

const remove = command('remove', 'remove a team without holders; its usage stays', {
  operand: TEAM,
  options: CHANGE_OPTIONS,
  examples: ['teams remove search'],
  run: (given, io, operand) => {
    const by = authorOf(given, io);
    return withStore(given, io, 'must exist', async (store) => {
      const { id, name } = await teamNamed(store, operand);
      const outcome = await store.organisation.removeTeam(id, by);
      if (outcome === 'unknown') throw new Error('the team was removed just now');
      if (outcome === 'has_holders')
        throw new Error(
          'the team has holders: move them with tollgate holders set HOLDER --team NAME or --no-team',
        );
      const fields = JSON.stringify({ outcome: 'removed', team: name });
      await write(io.stdout, given.json ? `${fields}\n` : 'Removed the team.\n');
      return 0;
    });
  },
});

/** @throws UsageError, GatewayError invalid_value */
function readTeamName(text: string): string {
  const name = storableText(text, 'name');
  if (/^\.\.?$/.test(name)) throw new UsageError('a team is not called . or .., which no address can name');
  return name;
}

const COLUMNS = ['name', 'holders', 'labels', 'created_at', 'limits'];

const OUTCOMES = { added: 'is added', changed: 'is changed', same: 'is as before' } as const;

async function writeResult(
  isJson: boolean,
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
  await write(stdout, `${isJson ? JSON.stringify(fields) : text}\n`);
  return 0;
}

export const TEAMS = group('teams', 'groups of holders', [add, list, show, set, remove]);
