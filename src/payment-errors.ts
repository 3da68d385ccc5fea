// Errors of pages, orders and payments; a part of the table in errors.ts. Contains no text of a payment provider.
import { busy, forbidden, invalid, limited, transient } from './error-rule.ts';

export const PAYMENT_ERRORS = {
  cross_origin_form: forbidden(403, 'This form can only be submitted from its own site.'),
  unknown_host: forbidden(421, 'This page is not published under this name.'),
  invalid_event: invalid(400, 'The event is not valid.'),
  invalid_signature: invalid(400, 'The signature of the event is not valid.'),
  claim_forbidden: forbidden(403, 'This browser did not make the order, or the order does not exist.'),
  unknown_order: invalid(404, 'There is no such order.'),
  already_entitled: invalid(409, 'This key has that tier, or a higher one, already.'),
  no_subscription: invalid(404, 'This key has no subscription that is managed at a payment provider.'),
  order_closed: invalid(409, 'A key for this order is no longer available.'),
  order_not_paid: transient(409, 'The order is not paid yet.'),
  order_limit: limited(429, 'Too many orders came from this address. Wait a moment.'),
  payment_unavailable: busy(
    503,
    'The payment provider cannot be reached at the moment. Nothing was charged.',
  ),
};
