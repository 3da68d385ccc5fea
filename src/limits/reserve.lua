-- The limits of all scopes of a request in Redis: each operation is one atomic step by the clock of Redis. The process derives
-- which limit rejects, and what clients see, from the returned values (verdict.ts).
--
-- Before this text reserve-script.ts puts the table of limits. For each limit: POSITIONS of its count in a value, and KINDS of
-- what it counts (1 requests, 2 tokens, 3 cost, 4 running requests). For each total (a limit over a day or month), in the order
-- of their fields: TOTAL_KINDS, TOTAL_WINDOWS (1 day, 2 month). And SIZE, the number of fields in a value, and their FORMAT;
-- and functions without loops for what each call does to all totals of each scope.
--
-- KEYS  1  sorted set, the leases of the slot by expiry (ms); a member is ID:BEGUN:TOKENS:COST:TAG=WINDOW,… with BEGUN in µs and,
--          for each of its scopes, the start of the minute window that holds its amounts. TAG is the end of the scope's key.
--       2… for each scope a string of unsigned integers of 64 bits, little-endian:
--          1 start of the minute window (ms), 2 its requests, 3 its tokens; 4 running requests; 5 when counting of totals started
--          (µs); 6 no lease of the slot expires before this time (ms), in the first scope; 7 when the leases were counted last (ms).
--          Then two for each total: its window (the number of the day or month) times 2, plus 1 where usage before is known; and its
--          count, which includes running requests. 0 and 0: not counted. Versions may differ in their totals: a longer value keeps
--          its end, and in a shorter one the rest is 0.
--       For an hour beside a scope, KEY:missed: a hash of what the store knew beyond each total, by its order.
-- ARGV  1  length of the minute window, 2 of a lease (ms), 3 the operation:
--       change  MEMBER TOKENS COST LIMITS [SCOPE KNOWN TOTAL…]…   other amounts for a lease; in its scopes its request and its slot
--               are not checked again. LIMITS: for each scope the number of its limits, then the index and the maximum of each,
--               as doubles. Totals of the store in the order of their fields. KNOWN: 0 they could not be read, 1 they were, or
--               the day of totals that are read anew, which raise what is counted where it is less
--       peek    likewise; reserves nothing
--       batch   NUMBERS SETTLEMENTS RESERVATIONS LIMITS MEMBER|ID|''… ID… [SCOPE KNOWN TOTAL…]…   settles, then reserves.
--               NUMBERS, as doubles, has TOKENS COST REQUESTS MODE AGE RECENT_REQUESTS RECENT_TOKENS for each settlement, and
--               TOKENS COST for each reservation. A settlement releases a lease, by its ID where no reply gave the rest. Without
--               such a lease, by MODE: 1 counts the amounts alone, 0 nothing, 2 counts as without a lease: REQUESTS and amounts in
--               the totals, the RECENT ones, at most AGE ms old, in the minute window. REQUESTS -1: undo the request of the lease.
--               Without reservations, LIMITS is empty and the answer is 1
--       enter   ID TOKENS COST AGE   a running request that was admitted elsewhere AGE ms ago; nothing if it is known
--       renew   MEMBER|ID …
-- The first three return { 3, SCOPE… } where they need totals of the store (settlements are done then), else a digit for each
-- reservation or change (0 refused, 1 admitted, 2 refused, and the lease is kept), the time (ms), BEGUN and TAG=WINDOW,… of new leases, and
-- the value of each scope.
local DAY = 86400000
local HEAD = 7
local LEASES = KEYS[1]
local STEM = string.sub(LEASES, 1, -7)
local floor, max, min = math.floor, math.max, math.min
local windowMs, leaseMs, operation = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Lua concatenates large numbers with an exponent. Arguments of redis.call need no text: Redis writes 17 digits.
local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- The lease with this id, where its other parts are unknown: only after a reply that did not come.
local function find(member)
  if member == '' or string.find(member, ':', 1, true) then return member end
  for _, each in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
    if string.sub(each, 1, #member + 1) == member .. ':' then return each end
  end
  return member
end

if operation == 'renew' then
  local renewed = 0
  for index = 4, #ARGV do
    renewed = renewed + redis.call('ZADD', LEASES, 'XX', 'CH', now + leaseMs, find(ARGV[index]))
  end
  if redis.call('PTTL', LEASES) < leaseMs * 2 then redis.call('PEXPIRE', LEASES, leaseMs * 2) end
  return renewed
end

-- The civil month and day of month of a day since 1970, by eras of 400 years that start in March. Months count from year 0.
local function civil(day)
  local shifted = day + 719468
  local era = floor(shifted / 146097)
  local dayOfEra = shifted - era * 146097
  local yearOfEra = floor(
    (dayOfEra - floor(dayOfEra / 1460) + floor(dayOfEra / 36524) - floor(dayOfEra / 146096)) / 365
  )
  local dayOfYear = dayOfEra - (365 * yearOfEra + floor(yearOfEra / 4) - floor(yearOfEra / 100))
  local march = floor((5 * dayOfYear + 2) / 153)
  -- Years times 12 plus months, which run on from March, being 2.
  return (yearOfEra + era * 400) * 12 + march + 2, dayOfYear - floor((153 * march + 2) / 5) + 1
end

local day = floor(now / DAY)
local month, dayOfMonth = civil(day)
local current = { day, month }
-- At least the rest of the month and one day more.
local monthMs = (33 - dayOfMonth) * DAY

local function number(digits)
  local value = tonumber(digits or '')
  return value and value <= 1e17 and value or 0
end

-- What a lease holds in all of its scopes.
local LEASE = '^[^:]*:(%d+):(%d+):(%d+):(.*)$'
local function readLease(member)
  local begun, tokens, cost, tags = string.match(member, LEASE)
  begun = number(begun)
  local leaseDay = floor(begun / 1000 / DAY)
  -- The windows of its scopes, by their tags.
  local windows, size = {}, 0
  for tag, start in string.gmatch(tags or '', '([^=,]+)=(%d+)') do
    windows[tag], size = number(start), size + 1
  end
  return {
    begun = begun,
    amounts = { 1, number(tokens), number(cost), 1 },
    windows = windows,
    size = size,
    dates = { leaseDay, leaseDay == day and month or (civil(leaseDay)) },
  }
end

-- What a lease adds to a total of the present windows.
local function amount(lease, order)
  if lease.dates[TOTAL_WINDOWS[order]] ~= current[TOTAL_WINDOWS[order]] then return 0 end
  return lease.amounts[TOTAL_KINDS[order]]
end

-- What running requests of a scope add to each of the totals, and their number.
local function running(tag)
  local sums, slots = {}, 0
  for order = 1, #TOTAL_KINDS do sums[order] = 0 end
  for _, member in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
    local lease = readLease(member)
    if lease.windows[tag] then
      slots = slots + 1
      for order = 1, #TOTAL_KINDS do sums[order] = sums[order] + amount(lease, order) end
    end
  end
  return sums, slots
end

-- Scopes by their position in KEYS, less one. `hasTotals`: they are counted; `isKnown`: with what was used before; `isNew`: its
-- expiry has to be set; `isChanged`: it has to be written.
local scopes = {}
-- What the fields of the present windows are, where all is known.
local present = {}
for order = 1, #TOTAL_KINDS do present[order] = current[TOTAL_WINDOWS[order]] * 2 + 1 end

-- @return the fields of a value, and how many bytes it is too short; nil for what is none. MGET says so of other types, too
local function unpacked(raw)
  if not raw or #raw < HEAD * 8 or #raw % 8 ~= 0 then return end
  local rest = SIZE * 8 - #raw
  return { struct.unpack(FORMAT, rest > 0 and raw .. string.rep('\0', rest) or raw) }, rest
end

local function read(index, raw)
  local key = KEYS[index + 1]
  local scope = { key = key, tag = string.sub(key, #STEM + 1), tail = '', values = 0, hasTotals = true, isKnown = true, isNew = false, isChanged = false }
  local values, rest = unpacked(raw)
  if values then
    if rest < 0 then scope.tail = string.sub(raw, SIZE * 8 + 1) end
  else
    values, scope.isNew = {}, true
    for field = 1, SIZE do values[field] = 0 end
    -- Its leases may have outlived it.
    local _, slots = running(scope.tag)
    values[4], values[7] = slots, now
  end
  scope.values = values
  -- The clock was set back. The window must not last for longer than a window.
  if values[1] > now then
    values[1], scope.isNew, scope.isChanged = now, true, true
  end
  if now - values[1] >= windowMs then values[1], values[2], values[3] = 0, 0, 0 end
  if isCurrent(values, current[1] * 2 + 1, current[2] * 2 + 1) then return scope end
  local hasTotals, isKnown, isStale = false, true, false
  for order = 1, #present do
    local stored = values[HEAD + 2 * order - 1]
    local isOdd = stored % 2
    -- In terms of known totals.
    local held = stored - isOdd + 1
    if stored > 0 then hasTotals = true end
    if isOdd == 0 then isKnown = false end
    if held ~= present[order] then isStale = true end
    -- The clock was set back: the totals of the earlier date are gone.
    if held > present[order] then hasTotals = false break end
  end
  if not hasTotals then
    for field = HEAD + 1, SIZE do values[field] = 0 end
  elseif isStale then
    local sums = running(scope.tag)
    for order = 1, #present do
      local field = HEAD + 2 * order
      local isOdd = values[field - 1] % 2
      if values[field - 1] - isOdd + 1 ~= present[order] then
        values[field - 1], values[field] = present[order] - 1 + isOdd, sums[order]
      end
    end
  end
  scope.hasTotals, scope.isKnown = hasTotals, hasTotals and isKnown
  return scope
end

local function packed(values)
  return struct.pack(FORMAT, unpack(values, 1, SIZE))
end

-- @return the value without its tail
local function write(scope)
  local value = packed(scope.values)
  if scope.isNew then
    redis.call('SET', scope.key, value .. scope.tail, 'PX', scope.hasTotals and monthMs or max(windowMs, leaseMs * 2))
    scope.isNew = false
  else
    -- Neither its end nor its expiry changes.
    redis.call('SETRANGE', scope.key, '0', value)
  end
  scope.isChanged = false
  return value
end

local raws = redis.call('MGET', unpack(KEYS, 2))
for index = 1, #KEYS - 1 do scopes[index] = read(index, raws[index]) end

-- Counts in the open minute window, or opens one that began at `start`.
local function count(scope, start, amounts, requests)
  local values = scope.values
  if values[1] == 0 then
    values[1], scope.isNew = start, true
  end
  values[2], values[3] = values[2] + requests, values[3] + amounts[2]
end

-- @param amounts of each kind, the requests first
local function addTotals(scope, amounts)
  if scope.hasTotals then addToTotals(scope.values, amounts[1], amounts[2], amounts[3]) end
end

-- Takes the amounts of a lease out of the windows that hold them.
local function subtract(values, lease, window)
  if values[1] > 0 and window == values[1] then values[3] = max(0, values[3] - lease.amounts[2]) end
  takeFromTotals(values, lease.dates[1] * 2, lease.dates[2] * 2, lease.amounts[2], lease.amounts[3])
end

-- Undoes all but the request of a lease, in its scopes but those of this call with `isKept`.
local function undo(lease, isKept)
  for tag, start in pairs(lease.windows) do
    local found
    for index = 1, #scopes do
      if scopes[index].tag == tag then found = scopes[index] end
    end
    if found and not isKept then
      subtract(found.values, lease, start)
      found.values[4], found.isChanged = max(0, found.values[4] - 1), true
    elseif not found then
      local key = STEM .. tag
      local values = unpacked(redis.call('MGET', key)[1])
      if values then
        subtract(values, lease, start)
        values[4] = max(0, values[4] - 1)
        redis.call('SETRANGE', key, '0', packed(values))
      end
    end
  end
end

-- Whether Redis was emptied while a lease ran, which the totals do not count then.
local function isOlder(scope, lease)
  return scope.hasTotals and lease.begun < scope.values[5]
end

-- @param times 1, or -1 to undo it
local function addRequest(values, lease, times)
  for order = 1, #TOTAL_KINDS do
    local field = HEAD + 2 * order
    if TOTAL_KINDS[order] == 1 then values[field] = max(0, values[field] + times * amount(lease, order)) end
  end
end

-- What a lease that begins now says of its scopes. @param start of a minute window, where none is open
local function tagsOf(start)
  local tags = {}
  for index = 1, #scopes do
    local opened = scopes[index].values[1]
    tags[index] = string.format('%s=%.0f', scopes[index].tag, opened > 0 and opened or start)
  end
  return table.concat(tags, ',')
end

local function memberOf(id, tokens, cost, begun, tags)
  return string.format('%s:%.0f:%.0f:%.0f:%s', id, begun, tokens, cost, tags)
end

-- @param leases score and member of each
-- @param others running requests of the first scope. While there are some, the set has its expiry since the window began at the latest
local function addLeases(leases, others)
  redis.call('ZADD', LEASES, unpack(leases))
  local life, isNew = leaseMs * 2, others == 0
  for index = 1, #scopes do
    isNew = isNew or scopes[index].isNew
    -- While there are totals, what an expired lease holds of them must still be subtracted.
    if scopes[index].hasTotals then life = max(life, monthMs) end
  end
  if isNew or now - scopes[1].values[1] >= life - leaseMs then redis.call('PEXPIRE', LEASES, life) end
end

-- What the store knew and Redis did not, and when: it may still arrive from a replica that was cut off before. The next look at the store
-- corrects what did not.
local MISSED = ':missed'
local MISSED_MS = 3600000

-- @return at least `counted`: what the store knows of a total
local function raised(scope, order, counted, before)
  if before <= counted then return counted end
  redis.call('HINCRBY', scope.key .. MISSED, order, text(before - counted))
  redis.call('HSET', scope.key .. MISSED, 'at', now)
  redis.call('PEXPIRE', scope.key .. MISSED, MISSED_MS)
  scope.isChanged = true
  return before
end

-- Adds what comes without a lease. What began before the store was read is counted already where the store knew it.
-- @param began in milliseconds
local function addLate(scope, amounts, began)
  if not scope.hasTotals then return end
  addTotals(scope, amounts)
  if began >= number(redis.call('HGET', scope.key .. MISSED, 'at')) then return end
  for order = 1, #TOTAL_KINDS do
    local amount = amounts[TOTAL_KINDS[order]]
    local known = amount > 0 and min(amount, number(redis.call('HGET', scope.key .. MISSED, order))) or 0
    if known > 0 then
      local field = HEAD + 2 * order
      scope.values[field] = scope.values[field] - known
      redis.call('HINCRBY', scope.key .. MISSED, order, text(-known))
    end
  end
end

local function settle(member, isHeld, amounts, requests, mode, age, recent, recentRequests)
  if not isHeld and mode == 2 then
    amounts[1] = requests
    for index = 1, #scopes do
      local scope = scopes[index]
      if age < windowMs then count(scope, now - age, recent, recentRequests) end
      addLate(scope, amounts, now - age)
      if age < windowMs or scope.hasTotals then scope.isChanged = true end
    end
    return
  end
  local lease = readLease(member)
  for index, scope in ipairs(scopes) do
    local values, window = scope.values, lease.windows[scope.tag]
    local isIn = isHeld and window ~= nil
    if isIn then
      subtract(values, lease, window)
      values[4] = max(0, values[4] - 1)
    end
    if values[1] > 0 and window == values[1] then
      values[3] = values[3] + amounts[2]
      if isIn and requests < 0 then values[2] = max(0, values[2] + requests) end
    end
    if scope.hasTotals then
      addTotals(scope, amounts)
      if isIn and requests < 0 then addRequest(values, lease, -1) end
      -- Redis was emptied meanwhile, and the store did not know a request that ran.
      if not isHeld and isOlder(scope, lease) then addRequest(values, lease, 1) end
    end
    if raws[index] then scope.isChanged = true end
  end
  if isHeld and lease.size > #scopes then undo(lease, true) end
end

-- Releases the leases of a batch. Those whose amounts are all in the present windows, which are nearly all, are summed up first.
local function settleAll(members, numbers)
  local tags = tagsOf(0)
  local ended, reserved, reservedCost, used, usedCost = 0, 0, 0, 0, 0
  for order = 1, members do
    local at, member = 7 * (order - 1), find(ARGV[7 + order])
    local amounts, requests, mode = { 0, numbers[at + 1], numbers[at + 2], 1 }, numbers[at + 3], numbers[at + 4]
    local isHeld = member ~= '' and redis.call('ZREM', LEASES, member) == 1
    local begun, tokens, cost, ofLease = string.match(member, LEASE)
    if isHeld and requests == 0 and ofLease == tags and floor(number(begun) / 1000 / DAY) == day then
      ended, reserved, reservedCost = ended + 1, reserved + number(tokens), reservedCost + number(cost)
      used, usedCost = used + amounts[2], usedCost + amounts[3]
    elseif isHeld or mode ~= 0 then
      settle(member, isHeld, amounts, requests, mode, numbers[at + 5], { 1, numbers[at + 7] }, numbers[at + 6])
    end
  end
  for index = 1, ended > 0 and #scopes or 0 do
    local scope = scopes[index]
    local values = scope.values
    values[3], values[4] = max(0, values[3] - reserved) + used, max(0, values[4] - ended)
    takeFromTotals(values, day * 2, month * 2, reserved, reservedCost)
    if scope.hasTotals then addToTotals(values, 0, used, usedCost) end
    if raws[index] then scope.isChanged = true end
  end
end

if operation == 'enter' then
  local id, age = ARGV[4], tonumber(ARGV[7])
  local amounts = { 1, tonumber(ARGV[5]), tonumber(ARGV[6]), 1 }
  local member = find(id)
  if member ~= id then
    redis.call('ZADD', LEASES, now + leaseMs, member)
    return member
  end
  member = memberOf(id, amounts[2], amounts[3], micros - age * 1000, tagsOf(now - age))
  addLeases({ now + leaseMs, member }, 0)
  local lease = readLease(member)
  for _, scope in ipairs(scopes) do
    if age < windowMs then count(scope, now - age, amounts, 1) end
    for order = 1, scope.hasTotals and #TOTAL_KINDS or 0 do
      scope.values[HEAD + 2 * order] = scope.values[HEAD + 2 * order] + amount(lease, order)
    end
    scope.values[4] = scope.values[4] + 1
    write(scope)
  end
  return member
end

-- Of a batch; a change and a look have none.
local settled, reserving, numbers = 0, 0, nil
if operation == 'batch' then
  settled, reserving = tonumber(ARGV[5]), tonumber(ARGV[6])
  numbers = { struct.unpack('<' .. string.rep('d', #ARGV[4] / 8), ARGV[4]) }
  if reserving == 0 then
    settleAll(settled, numbers)
    for index = 1, #scopes do
      if scopes[index].isChanged then write(scopes[index]) end
    end
    return 1
  end
end

-- Leases whose process is gone. Those that expire later than a lease can were made before the clock was set back.
local earliest = scopes[1].values[6]
if now >= earliest or earliest > now + leaseMs then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', LEASES, member)
    undo(readLease(member))
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '(' .. text(now + leaseMs), '+inf', 'LIMIT', 0, 1000)) do
    redis.call('ZADD', LEASES, now + leaseMs, member)
  end
  local first = redis.call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
  local score = floor(number(first[2]))
  scopes[1].values[6] = score > 0 and score or now + leaseMs
end

-- Totals of the store. What was settled since may not have reached it, and what runs has not.
for start = 8 + settled + reserving, #ARGV, 2 + #TOTAL_KINDS do
  local scope, given = scopes[tonumber(ARGV[start])], tonumber(ARGV[start + 1])
  local known = given == 1
  if given > 1 then
    local values, reserved = scope.values, running(scope.tag)
    for order = 1, scope.hasTotals and given == day and #TOTAL_KINDS or 0 do
      local field, before = HEAD + 2 * order, tonumber(ARGV[start + 1 + order])
      values[field] = raised(scope, order, values[field] - reserved[order], before) + reserved[order]
    end
  elseif not scope.hasTotals or (not scope.isKnown and known) then
    local values, reserved = scope.values, running(scope.tag)
    if not scope.hasTotals then values[5] = micros end
    for order = 1, #TOTAL_KINDS do
      local field, before = HEAD + 2 * order, tonumber(ARGV[start + 1 + order])
      local settled = scope.hasTotals and values[field] - reserved[order] or 0
      values[field - 1] = current[TOTAL_WINDOWS[order]] * 2 + (known and 1 or 0)
      values[field] = raised(scope, order, settled, before) + reserved[order]
    end
    scope.hasTotals, scope.isKnown, scope.isNew, scope.isChanged = true, known, true, true
  end
end

-- The lease that is to be changed, as far as it still exists: its request and its slot are counted already.
local id = operation == 'change' and find(ARGV[4]) or ''
local old = operation == 'change' and readLease(id) or nil
local isHeld = old and redis.call('ZSCORE', LEASES, id) or false
local oldWindows = {}
for index = 1, old and #scopes or 0 do
  -- One that is known by its id alone, and is gone, was in all of them.
  oldWindows[index] = old.size == 0 and 0 or old.windows[scopes[index].tag] or false
end

local limits = { struct.unpack('<' .. string.rep('d', #ARGV[7] / 8), ARGV[7]) }

-- The scopes whose totals have to be read first.
local missing, at = { 3 }, 1
for index = 1, #scopes do
  local last = at + 2 * limits[at]
  for each = at + 1, scopes[index].hasTotals and 0 or last, 2 do
    if POSITIONS[limits[each]] > HEAD then
      missing[#missing + 1] = index
      break
    end
  end
  at = last + 1
end

-- Whether some requests fit in all scopes.
local function fits(requests, tokens, cost)
  local isFit, at = true, 1
  for index = 1, #scopes do
    local scope = scopes[index]
    local values, held = scope.values, isHeld and oldWindows[index]
    local last = at + 2 * limits[at]
    for each = at + 1, last, 2 do
      local maximum = limits[each + 1]
      local field, kind = POSITIONS[limits[each]], KINDS[limits[each]]
      if kind == 2 or kind == 3 then
        local more = kind == 2 and tokens or cost
        if more > 0 or kind == 2 then
          if held and field > HEAD then
            more = more - amount(old, (field - HEAD) / 2)
          elseif held and held == values[1] then
            more = more - old.amounts[2]
          end
          if values[field] + more > maximum then isFit = false end
        end
      elseif not (old and oldWindows[index]) and values[field] + requests > maximum then
        -- Leases that were lost with the sorted set are not counted for longer.
        if kind == 4 and (now - values[7] >= leaseMs or values[7] > now) then
          local _, slots = running(scope.tag)
          values[4], values[7], scope.isChanged = slots, now, true
        end
        if values[field] + requests > maximum then isFit = false end
      end
    end
    at = last + 1
  end
  return isFit
end

local function reserve(requests, tokens, cost)
  for index = 1, #scopes do
    local scope = scopes[index]
    local values, wasIn, held = scope.values, old and oldWindows[index], isHeld and oldWindows[index]
    if held then subtract(values, old, held) end
    -- Where a lease that is to be changed has expired, its request runs all the same, and takes a slot again.
    if not held then values[4] = values[4] + requests end
    if values[1] == 0 then values[1], scope.isNew = now, true end
    values[2], values[3] = values[2] + (wasIn and 0 or requests), values[3] + tokens
    if scope.hasTotals then
      addToTotals(values, (not wasIn or not isHeld and isOlder(scope, old)) and requests or 0, tokens, cost)
    end
    scope.isChanged = true
  end
end

local verdicts, begun = {}, ''

-- @param requests ID, TOKENS and COST of each; they are reserved already
-- @param others see addLeases
local function admit(requests, others)
  if #requests == 0 then return end
  local tags, leases = tagsOf(0), {}
  begun = text(micros) .. ' ' .. tags
  for order = 1, #requests do
    local request = requests[order]
    leases[2 * order - 1], leases[2 * order] = now + leaseMs, memberOf(request[1], request[2], request[3], micros, tags)
  end
  addLeases(leases, others)
end

local function change(tokens, cost)
  verdicts[1] = isHeld and 2 or 0
  if not fits(1, tokens, cost) then return end
  verdicts[1] = 1
  reserve(1, tokens, cost)
  if isHeld then
    redis.call('ZREM', LEASES, id)
    undo(old, true)
  end
  admit({ { string.match(id, '^[^:]*'), tokens, cost } }, 0)
end

local function reserveAll()
  local requests, all = {}, { reserving, 0, 0 }
  for order = 1, reserving do
    local at = 7 * settled + 2 * order
    requests[order] = { ARGV[7 + settled + order], numbers[at - 1], numbers[at] }
    all[2], all[3] = all[2] + numbers[at - 1], all[3] + numbers[at]
  end
  local more = { reserving, all[2], all[3] }
  for at = 1, 7 * settled, 7 do
    more[1], more[2], more[3] = more[1] + max(0, numbers[at + 2]), more[2] + numbers[at], more[3] + numbers[at + 1]
  end
  local others = scopes[1].values[4]
  -- Usually there is room for everything, and the order makes no difference. Then the set of leases does not become empty between.
  if #missing == 1 and fits(unpack(more)) then
    reserve(unpack(all))
    admit(requests, others)
    settleAll(settled, numbers)
    verdicts[1] = string.rep('1', reserving)
    return
  end
  settleAll(settled, numbers)
  if #missing > 1 then return end
  local admitted = {}
  others = scopes[1].values[4]
  for order = 1, reserving do
    local isAdmitted = fits(1, requests[order][2], requests[order][3])
    verdicts[order] = isAdmitted and 1 or 0
    if isAdmitted then
      reserve(1, requests[order][2], requests[order][3])
      admitted[#admitted + 1] = requests[order]
    end
  end
  admit(admitted, others)
end

if reserving > 0 then
  reserveAll()
elseif operation == 'change' and #missing == 1 then
  change(tonumber(ARGV[5]), tonumber(ARGV[6]))
end

-- The values as they are stored: one string for each scope is cheaper than an integer for each count.
local answer = { table.concat(verdicts), now, begun }
for index = 1, #scopes do
  local scope = scopes[index]
  answer[index + 3] = scope.isChanged and write(scope) or packed(scope.values)
end
return #missing > 1 and missing or answer
