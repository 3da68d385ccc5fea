// Errors of the console and its API on the admin listener; a part of the table in errors.ts.
import { forbidden, invalid, limited, transient } from './error-rule.ts';

export const OPERATOR_ERRORS = {
  operator_required: invalid(
    401,
    'Sign in, or send the token of an operator as: Authorization: Bearer TOKEN.',
  ),
  invalid_operator: invalid(401, 'The token of the operator is not valid.'),
  no_operators: forbidden(
    403,
    'There is no operator yet. Make the first one: tollgate operators add NAME --role admin.',
  ),
  role_too_low: forbidden(403, 'Your role does not allow this.'),
  forged_request: forbidden(403, 'The request does not come from a page of this console.'),
  record_not_found: invalid(404, 'There is no such record.'),
  record_conflict: invalid(409, 'The record is in a state that does not allow this.'),
  request_unsettled: transient(
    409,
    'A request with this Idempotency-Key is running, or ended without a result.',
  ),
  record_changed: invalid(412, 'The record has changed since you read it.'),
  request_key_reused: invalid(422, 'This Idempotency-Key belongs to another request.'),
  too_many_sign_ins: limited(429, 'Too many attempts to sign in. Wait a minute.'),
};
