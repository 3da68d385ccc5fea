// `POST /commands`: runs a command of the command line for `tollgate --url`, whose output is then that of the same command at the store.
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import type { Role } from '../../store/operator-record.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { runOnDesk } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { requireRole } from '../console-identity.ts';
import { eventTarget, KINDS } from './api-records.ts';
import { route } from './api-route.ts';

type RecordOf = (desk: ConsoleDesk, id: string) => Promise<object | undefined>;

interface RemoteCommand {
  readonly role: Role;
  /** Undefined for one that only reads. */
  readonly change?: { readonly record: RecordOf | undefined; readonly hasActor: boolean };
}

const READS: RemoteCommand = { role: 'viewer' };

function changing(
  { role, recordOf: record }: { readonly role: Role; readonly recordOf?: RecordOf },
  actions: string,
  hasActor = true,
) {
  const command = { role, change: { record, hasActor } };
  return Object.fromEntries(actions.split(' ').map((action) => [action, command]));
}

/** By their first and second word; the empty one is that of a command without a second word. */
const COMMANDS: Readonly<Record<string, Readonly<Record<string, RemoteCommand>>>> = {
  explain: { '': READS },
  keys: {
    list: READS,
    show: READS,
    events: READS,
    ...changing({ role: 'support' }, 'issue'),
    ...changing(KINDS.keys, 'set rotate revoke'),
    ...changing(KINDS.holders, 'tier suspend resume'),
  },
  holders: { list: READS, show: READS, ...changing(KINDS.holders, 'set tier suspend resume') },
  teams: { list: READS, show: READS, ...changing(KINDS.teams, 'add set remove') },
  orders: {
    list: READS,
    show: READS,
    ...changing(KINDS.orders, 'check cancel refund portal-link paid trust lapse', false),
  },
  upstreams: { list: READS, show: READS, events: READS, ...changing(KINDS.upstreams, 'drain resume') },
  operators: { list: { role: 'admin' }, ...changing(KINDS.operators, 'add rotate remove') },
  usage: { '': READS, months: READS, export: READS, ...changing({ role: 'admin' }, 'close') },
};

/** Options that mean something at the machine of the caller, or that the server decides. */
const OWN_OPTIONS = new Set(['--config', '--actor', '--url']);
/** Options without a value. */
const FLAGS = new Set('--json --csv --force --no-name --no-expiry --no-team --now --undo'.split(' '));

/** Bytes of the body of a request, for `explain --body -`. */
export const MAX_COMMAND_BYTES = 4 * 1024 * 1024;

export const COMMAND_ROUTE = route({
  method: 'POST',
  path: '/commands',
  name: 'commands.run',
  role: 'viewer',
  about: 'Runs a command line, as `tollgate --url` does. Which role it needs depends on the command.',
  body: z.strictObject({
    argv: z.array(z.string().max(10_000)).min(1).max(200).describe('Without `tollgate`: `["keys", "list"]`.'),
    stdin: z.string().optional(),
  }),
  answer: z.strictObject({ exit_code: z.number(), stdout: z.string(), stderr: z.string() }),
  recordsItself: true,
  maxBytes: MAX_COMMAND_BYTES,
  run: async ({ desk, operator, actor, address, body: { argv, stdin = '' } }) => {
    const found = commandOf(argv);
    if (found === undefined)
      throw new GatewayError('invalid_value', 'A gateway does not run this command.', { param: 'argv' });
    const { words, command } = found;
    requireRole(operator, command.role);
    requireAllowed(argv);
    const rest = argv.slice(words.length);
    const { change } = command;
    const own = change?.hasActor === true ? [`--actor=${actor}`] : [];
    const run = async () => {
      const { code, ...output } = await runOnDesk(desk, [...words, ...own, ...rest], { stdin });
      return { exit_code: code, ...output };
    };
    if (change === undefined) return run();
    const target = operandOf(rest);
    const before = target === null ? undefined : await change.record?.(desk, target);
    const { operators } = desk.store;
    const event = await operators.addEvent({
      at: new Date(desk.now()).toISOString(),
      actor,
      address,
      what: words.join('.'),
      target: target && eventTarget(words[0] ?? '', maskKeys(target), before),
      reason: reasonIn(rest),
      status: null,
      requestKey: null,
      digest: null,
      before: before === undefined ? null : JSON.stringify(before),
      after: null,
    });
    if (!('id' in event)) throw new GatewayError('internal_error');
    const result = await run();
    // 3: done, and a replica has not confirmed it.
    if (result.exit_code !== 0 && result.exit_code !== 3) await operators.dropEvent(event.id);
    else {
      const record = target === null ? undefined : await change.record?.(desk, target);
      const after = record === undefined ? { output: maskKeys(result.stdout).slice(0, 1000) } : { record };
      await operators.settleEvent(event.id, { status: 200, after: JSON.stringify(after) });
    }
    return result;
  },
});

/** The words of the command, such as `keys list`; undefined where a gateway does not run this command line: only the machine with the configuration can, or it is mistyped. */
export function remoteWords(argv: readonly string[]): readonly string[] | undefined {
  return commandOf(argv)?.words;
}

/** All that a gateway runs, such as `keys list`. */
export function remoteNames(): readonly string[] {
  return Object.entries(COMMANDS).flatMap(([first, group]) =>
    Object.keys(group).map((second) => `${first} ${second}`.trim()),
  );
}

function commandOf(
  argv: readonly string[],
): { words: readonly string[]; command: RemoteCommand } | undefined {
  const [first = '', second = ''] = argv;
  const group = Object.hasOwn(COMMANDS, first) ? COMMANDS[first] : undefined;
  if (group === undefined) return undefined;
  const named = second !== '' && Object.hasOwn(group, second) ? group[second] : undefined;
  if (named !== undefined) return { words: [first, second], command: named };
  // Behind options, too, the parser could find the name of another command of the group, which may need a higher role.
  const alone = group[''];
  if (alone === undefined || argv.slice(1).some((word) => word !== '' && Object.hasOwn(group, word)))
    return undefined;
  return { words: [first], command: alone };
}

/** @throws GatewayError `invalid_value` */
function requireAllowed(argv: readonly string[]): void {
  const end = argv.indexOf('--');
  const options = end === -1 ? argv : argv.slice(0, end);
  for (const [at, word] of options.entries()) {
    const [name = '', value = options[at + 1]] = word.split('=', 2);
    if (OWN_OPTIONS.has(name) || (name === '--body' && value !== '-'))
      throw new GatewayError('invalid_value', `A gateway does not take ${name} with this value.`, {
        param: 'argv',
      });
  }
}

/** The word that is neither an option nor its value, for the event. */
function operandOf(rest: readonly string[]): string | null {
  const end = rest.indexOf('--');
  if (end !== -1) return rest[end + 1] ?? null;
  const isOption = (word = '') => word.startsWith('--');
  const takesNext = (word = '') => isOption(word) && !word.includes('=') && !FLAGS.has(word);
  return rest.find((word, at) => !isOption(word) && !takesNext(rest[at - 1])) ?? null;
}

function reasonIn(rest: readonly string[]): string | null {
  const at = rest.findIndex((word) => word === '--reason' || word.startsWith('--reason='));
  const word = rest[at];
  if (word === undefined) return null;
  return maskKeys((word === '--reason' ? rest[at + 1] : word.slice('--reason='.length)) ?? '');
}
