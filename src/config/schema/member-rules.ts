// Member rules: request members that a model or upstream rejects, or that are removed.
import { z } from 'zod';
import { foldName } from '../../wire/fold-name.ts';
import { section, text } from './field-kinds.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** Members that the gateway itself reads, so the upstream must get them unchanged. */
export const READ_MEMBERS = [
  'model',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'n',
  'max_output_tokens',
  'previous_response_id',
  'store',
  'background',
  'encoding_format',
  'input',
  'stream_format',
  'response_format',
  'prompt',
  'best_of',
] as const;

/** A name, or a dotted path to a nested member. */
const PATH = /^[A-Za-z0-9_-]{1,64}(?:\.[A-Za-z0-9_-]{1,64}){0,5}$/;

function readPath(value: string): ScalarResult<string> {
  const isPath = PATH.test(value) && value.split('.').every((each) => foldName(each) !== '');
  return isPath
    ? accepted(value)
    : rejected('must be the name of a member, such as provider, or a path, such as session.model');
}

function readRefused(value: string): ScalarResult<string> {
  return foldName(value) === 'model'
    ? rejected('must not be model: requests need it for routing')
    : readPath(value);
}

function readRemoved(value: string): ScalarResult<string> {
  const [first = ''] = value.split('.', 1);
  return READ_MEMBERS.some((name) => foldName(name) === foldName(first))
    ? rejected('is read by the gateway and cannot be removed; use `refuse` instead')
    : readPath(value);
}

export const memberRules = section({
  refuse: z
    .array(text(readRefused))
    .prefault([])
    .describe('Requests with one of these members get a 400, whichever target they would go to.'),
  remove: z
    .array(text(readRemoved))
    .prefault([])
    .describe('Members removed from requests to this upstream, or to every upstream of this model.'),
});

export type MemberRules = z.output<typeof memberRules>;

/** `refuses models, provider` and `removes user`, for the non-empty lists. */
export function describeMembers(
  { refuse: refused, remove: removed }: MemberRules = { refuse: [], remove: [] },
): string[] {
  return [
    ...(refused.length === 0 ? [] : [`refuses ${refused.join(', ')}`]),
    ...(removed.length === 0 ? [] : [`removes ${removed.join(', ')}`]),
  ];
}
