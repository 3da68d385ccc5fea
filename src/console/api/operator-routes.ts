// Calls of the API that change operators: the commands of the same names.
import { z } from 'zod';
import { ROLES } from '../../store/operator-record.ts';
import { argvOf, done } from '../command-runner.ts';
import { KINDS, showRoute } from './api-records.ts';
import { type AnyCall, NAME, requireRecord, route } from './api-route.ts';
import { operator, reason } from './api-schemas.ts';

const expiry = {
  expires: z.string().nullable().optional().describe('Such as `30d`; null: never. Without it 90 days.'),
};
const issued = z.strictObject({
  record: operator,
  token: z.string().nullable().describe('Null where the answer is repeated for the same Idempotency-Key.'),
});

const { role, recordOf } = KINDS.operators;
const OWN = {
  role,
  params: { name: NAME },
  record: ({ desk, params }: Pick<AnyCall, 'desk' | 'params'>) => recordOf(desk, params['name'] ?? ''),
};

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
  return { record: requireRecord('operator', await recordOf(desk, name)), token: stdout.trim() };
}

export const OPERATOR_ROUTES = [
  showRoute('operators', 'An operator.'),
  route({
    role,
    method: 'POST',
    path: '/operators',
    name: 'operators.add',
    about: 'A new operator, with the token in this answer.',
    body: z.strictObject({ name: NAME, role: z.enum(ROLES), ...expiry, ...reason }),
    answer: issued,
    secrets: ['token'],
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
    body: z.strictObject({ ...expiry, ...reason }),
    answer: issued,
    secrets: ['token'],
    run: (call) => issue(call, 'rotate', call.params['name'] ?? '', call.body),
  }),
  route({
    ...OWN,
    method: 'DELETE',
    path: '/operators/:name',
    name: 'operators.remove',
    about: 'Removes an operator; the token and the sessions end at once.',
    query: z.strictObject(reason),
    answer: z.strictObject({ record: z.null() }),
    run: async ({ desk, actor, params, query }) => {
      await done(desk, argvOf(['operators', 'remove'], params['name'] ?? '', { actor, ...query }));
      return { record: null };
    },
  }),
];
