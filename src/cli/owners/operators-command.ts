// `tollgate operators`: who may use the console and the API of the admin listener. It works on the store directly.
import { Hasher } from '../../auth/hashing/hasher.ts';
import { openSecret } from '../../auth/hashing/hashing-secret.ts';
import type { Config } from '../../config/schema/config-schema.ts';
import {
  addOperator,
  isOperatorName,
  operatorEvent,
  operatorFields,
  rotateOperator,
} from '../../console/operator-tokens.ts';
import type { Authorship } from '../../store/key-record.ts';
import { type OperatorRecord, ROLES } from '../../store/operator-record.ts';
import type { Store } from '../../store/store.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import { didYouMean, UsageError } from '../program/arguments.ts';
import { choice, command, flag, type Given, group, required, SHOW_OPTIONS } from '../program/command.ts';
import { writeList } from '../program/table.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { withStore } from '../support-desk.ts';
import { authorOf, CHANGE_OPTIONS, readExpiry } from './owner-options.ts';

const MAX_LISTED = 1000;
const EXPIRY = {
  expires: {
    about: 'when the token expires, such as 30d or 2030-01-31; the default is 90d',
    value: 'TIME',
    excludes: ['noExpiry'],
    initial: undefined,
    read: (given: string): string => readExpiry(given, Date.now()),
  },
  noExpiry: flag('the token does not expire', ['expires']),
};

const ADD = command('add', 'make an operator; only the token goes to stdout, and only this once', {
  operand: { name: 'NAME', about: 'letters, digits and . _ @ + -' },
  options: {
    role: required(
      choice(ROLES, 'ROLE', 'viewer looks, support changes keys, holders and orders, admin also the rest'),
    ),
    ...EXPIRY,
    ...CHANGE_OPTIONS,
  },
  examples: ['operators add ann --role admin', 'operators add ci --role viewer --expires 30d'],
  run: async (given, io, name) => {
    if (!isOperatorName(name))
      throw new UsageError(
        'NAME has up to 100 letters, digits and . _ @ + -, and begins and ends with a letter or digit',
      );
    const operator = { name, role: given.role, expiresAt: expiryOf(given) };
    return withOperators(given, io, 'create', async (store, by, config) => {
      const issued = await addOperator(await partsOf(store, config, io), operator, by);
      if (issued === undefined) throw new Error('there is an operator with this name already');
      return writeToken(io, given.json, issued, operator);
    });
  },
});

const ROTATE = command('rotate', 'give an operator a new token; the old one and the sessions end at once', {
  operand: { name: 'NAME', about: 'of the operator' },
  options: { ...EXPIRY, ...CHANGE_OPTIONS },
  examples: ['operators rotate ann'],
  run: (given, io, name) =>
    withOperators(given, io, 'must exist', async (store, by, config) => {
      const operator = await findOperator(store, name);
      const renewed = { ...operator, expiresAt: expiryOf(given) };
      const issued = await rotateOperator(await partsOf(store, config, io), operator, renewed.expiresAt, by);
      if (issued === undefined) throw new Error('the operator was removed just now');
      return writeToken(io, given.json, issued, renewed);
    }),
});

const REMOVE = command('remove', 'remove an operator; the token and the sessions end at once', {
  operand: { name: 'NAME', about: 'of the operator' },
  options: CHANGE_OPTIONS,
  examples: ['operators remove ann --reason left'],
  run: (given, io, name) =>
    withOperators(given, io, 'must exist', async (store, by) => {
      const operator = await findOperator(store, name);
      const change = { before: operatorFields(operator) };
      const event = operatorEvent('operators.remove', operator.name, by, change);
      await store.operators.removeOperator(operator.id, isRecorded(io) ? null : event);
      const fields = JSON.stringify({ outcome: 'removed', operator: operator.name });
      await write(io.stdout, given.json ? `${fields}\n` : `Removed the operator ${operator.name}.\n`);
      return 0;
    }),
});

const LIST = command('list', 'list the operators', {
  options: SHOW_OPTIONS,
  examples: ['operators list'],
  run: (given, io) =>
    withStore(given, io, 'must exist', async (store) => {
      const page = async (_limit: number, last?: OperatorRecord) =>
        last === undefined ? store.operators.listOperators(MAX_LISTED) : [];
      const shown = ({ expiresAt }: OperatorRecord) => ({ expires_at: expiresAt ?? 'never' });
      return writeList(io, given.json, page, operatorFields, COLUMNS, shown);
    }),
});

const COLUMNS = ['name', 'role', 'prefix', 'expires_at', 'last_used'];

export const OPERATORS = group('operators', 'who may use the console of the admin listener', [
  ADD,
  LIST,
  ROTATE,
  REMOVE,
]);

function withOperators(
  given: Given<typeof CHANGE_OPTIONS>,
  io: CommandIo,
  missing: 'create' | 'must exist',
  work: (store: Store, by: Authorship, config: Config) => Promise<number>,
): Promise<number> {
  const by = authorOf(given, io);
  return withStore(given, io, missing, (store, config) => work(store, by, config));
}

async function partsOf(store: Store, { static: fixed }: Config, io: CommandIo) {
  const secret = await openSecret(fixed.secret, fixed.store, store);
  return { store, secret, hasher: new Hasher(createMetrics()), isRecorded: isRecorded(io) };
}

/** The admin API records its changes itself, before they are done. */
function isRecorded({ desk }: CommandIo): boolean {
  return desk !== undefined;
}

/** RFC 3339, UTC; null for a token that does not expire. */
function expiryOf({ expires, noExpiry }: Given<typeof EXPIRY>): string | null {
  return noExpiry ? null : (expires ?? readExpiry('90d', Date.now()));
}

/** @throws Error that names the nearest operator */
async function findOperator(store: Store, name: string): Promise<OperatorRecord> {
  const found = await store.operators.findOperator({ name });
  if (found !== undefined) return found;
  const names = (await store.operators.listOperators(MAX_LISTED)).map((each) => each.name);
  throw new Error(`there is no operator with this name${didYouMean(name, names)}`);
}

async function writeToken(
  io: CommandIo,
  isJson: boolean,
  { token, prefix }: { readonly token: string; readonly prefix: string },
  { name, role, expiresAt }: Pick<OperatorRecord, 'name' | 'role' | 'expiresAt'>,
): Promise<number> {
  const fields = { token, name, role, prefix, expires_at: expiresAt };
  await write(io.stdout, `${isJson ? JSON.stringify(fields) : token}\n`);
  if (!isJson)
    await write(io.stderr, `Issued the token ${prefix} for ${name}. It is shown only this once.\n`);
  return 0;
}
