// Calls of the API that change operators: the commands of the same names, which write the events of their changes.
import { z } from 'zod';
import { ROLES } from '../../store/operator-record.ts';
import { argvOf, done } from '../command-runner.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { operatorFields } from '../operator-tokens.ts';
import { type AnyCall, NAME, requireRecord, route } from './api-route.ts';
import { operator, reason } from './api-schemas.ts';

const OWN = { role: 'admin', recordsItself: true } as const;
const expiry = {
  expires: z.string().nullable().optional().describe('Such as `30d`; null: never. Without it 90 days.'),
};
const issued = z.strictObject({
  record: operator,
  token: z.string().describe('It is in this answer and nowhere else.'),
});

async function recordOf({ store }: ConsoleDesk, name: string) {
  return operatorFields(requireRecord('operator', await store.operators.findOperator({ name })));
}

/** Runs a command that prints a token. */
async function issue(
  { desk, actor }: AnyCall,
  action: 'add' | 'rotate',
  name: string,
  {
    expires,
    ...options
  }: { expires?: string | null | undefined; role?: string; reason?: string | undefined },
) {
  const times = expires === null ? { 'no-expiry': true } : { expires };
  const argv = argvOf(['operators', action], name, { ...options, ...times, actor });
  const { stdout } = await done(desk, argv);
  return { record: await recordOf(desk, name), token: stdout.trim() };
}

export const OPERATOR_ROUTES = [
  route({
    ...OWN,
    method: 'POST',
    path: '/operators',
    name: 'operators.add',
    about: 'A new operator, with the token in this answer.',
    body: z.strictObject({ name: NAME, role: z.enum(ROLES), ...expiry, ...reason }),
    answer: issued,
    run: (call) => {
      const { name, ...options } = call.body;
      return issue(call, 'add', name, options);
    },
  }),
  route({
    ...OWN,
    method: 'POST',
    path: '/operators/:name/rotate',
    name: 'operators.rotate',
    about: 'A new token for an operator; the old one and the sessions end at once.',
    params: { name: NAME },
    body: z.strictObject({ ...expiry, ...reason }),
    answer: issued,
    run: async (call) => {
      const { name } = await recordOf(call.desk, call.params['name'] ?? '');
      return issue(call, 'rotate', name, call.body);
    },
  }),
  route({
    ...OWN,
    method: 'DELETE',
    path: '/operators/:name',
    name: 'operators.remove',
    about: 'Removes an operator; the token and the sessions end at once.',
    params: { name: NAME },
    answer: z.strictObject({ record: z.null() }),
    run: async ({ desk, actor, params }) => {
      const { name } = await recordOf(desk, params['name'] ?? '');
      await done(desk, argvOf(['operators', 'remove'], name, { actor }));
      return { record: null };
    },
  }),
];
