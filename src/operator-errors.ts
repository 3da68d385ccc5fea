// Errors of the console and its API on the admin listener; a part of the table in errors.ts.
import { forbidden, invalid, limited, transient } from './error-rule.ts';

export const OPERATOR_ERRORS = {
  operator_required: invalid(
    401,
    'Sign in, or send the token of an operator as: Authorization: Bearer TOKEN.',
    'Admin listener: a request to the console or its API has neither a token nor a session, or the session has ended.',
  ),
  invalid_operator: invalid(
    401,
    'The token of the operator is not valid.',
    'Admin listener: the token is malformed, unknown, replaced, removed or expired.',
  ),
  no_operators: forbidden(
    403,
    'There is no operator yet. Make the first one: tollgate operators add NAME --role admin.',
    'Admin listener: the store has no operator and `admin.sso` is not configured, so nothing is served.',
  ),
  role_too_low: forbidden(
    403,
    'Your role does not allow this.',
    'Admin listener: the operator is known, and its role is below the one that the call needs; the message names it.',
  ),
  forged_request: forbidden(
    403,
    'The request does not come from a page of this console.',
    'Admin listener: a change by a browser came from another origin, or without the CSRF token of the session. Reload the page.',
  ),
  record_not_found: invalid(
    404,
    'There is no such record.',
    'Admin listener: the key, holder, team, order or upstream does not exist; the message says which.',
  ),
  record_conflict: invalid(
    409,
    'The record is in a state that does not allow this.',
    'Admin listener: the name is taken, the key has ended, or the team has holders; the message says which.',
  ),
  request_unsettled: transient(
    409,
    'A request with this Idempotency-Key is running, or ended without a result.',
    'Admin listener: the first request has no answer yet. If it never gets one, look at the record before you repeat the change with another key.',
  ),
  record_changed: invalid(
    412,
    'The record has changed since you read it.',
    'Admin listener: `if-match` names an earlier state; `current` has the present one, and `difference` what changed.',
  ),
  request_key_reused: invalid(
    422,
    'This Idempotency-Key belongs to another request.',
    'Admin listener: the same key was sent with another method, target or body. Each change needs a key of its own.',
  ),
  too_many_sign_ins: limited(
    429,
    'Too many attempts to sign in. Wait a minute.',
    'Admin listener: too many tokens that were not verified before came from this address, or with this prefix.',
  ),
};
