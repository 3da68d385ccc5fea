// Errors of pages, orders and payments; a part of the table in errors.ts. Contains no text of a payment provider.
import { busy, forbidden, invalid, limited, transient } from './error-rule.ts';

export const PAYMENT_ERRORS = {
  cross_origin_form: forbidden(
    403,
    'This form can only be submitted from its own site.',
    'A browser submitted a form of the pricing pages from another origin.',
  ),
  unknown_host: forbidden(
    421,
    'This page is not published under this name.',
    'A page or checkout was requested with a `Host` other than that of `public_url`.',
  ),
  invalid_event: invalid(
    400,
    'The event is not valid.',
    'A signed event of the payment provider is malformed or of the other mode (test or live).',
  ),
  invalid_signature: invalid(
    400,
    'The signature of the event is not valid.',
    'An event of the payment provider has no valid signature, or was signed more than five minutes ago or ahead.',
  ),
  claim_forbidden: forbidden(
    403,
    'This browser did not make the order, or the order does not exist.',
    'A key is shown only to the browser that ordered it, identified by its cookie. The URL of the order is not enough.',
  ),
  unknown_order: invalid(
    404,
    'There is no such order.',
    'The URL names a payment session without an order at this gateway.',
  ),
  already_entitled: invalid(
    409,
    'This key has that tier, or a higher one, already.',
    'An upgrade was ordered to a tier that is not higher.',
  ),
  no_subscription: invalid(
    404,
    'This key has no subscription that is managed at a payment provider.',
    'The customer portal was opened for a key without a subscription, or for one of another payment provider or paid by invoice.',
  ),
  order_closed: invalid(
    409,
    'A key for this order is no longer available.',
    'Its key was handed out and used, or handed out more than 30 minutes ago; or the order expired, failed, was refunded or is disputed.',
  ),
  order_not_paid: transient(
    409,
    'The order is not paid yet.',
    'A key was requested before the payment provider confirmed the payment. It may be paid in a moment.',
  ),
  order_limit: limited(
    429,
    'Too many orders came from this address. Wait a moment.',
    'More than ten orders, or twenty calls about a subscription, in a minute from one address (IPv6: one /64).',
  ),
  payment_unavailable: busy(
    503,
    'The payment provider cannot be reached at the moment. Nothing was charged.',
    'Opening or checking a payment needs the provider, which did not answer in time or rejects the operator’s configuration (then `x-should-retry: false`).',
  ),
};
