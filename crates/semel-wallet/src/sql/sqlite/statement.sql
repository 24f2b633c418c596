-- An account's entries in order, of a span of time. No lock; a range of the primary key.
SELECT
    e.at, e.operation, e.amount, e.balance_after, e.version, o.op, o.id
FROM wallet_entry AS e
JOIN wallet_operation AS o ON o.key = e.operation
WHERE e.account = ?1
    AND (?2 IS NULL OR e.at >= ?2)
    AND (?3 IS NULL OR e.at < ?3)
ORDER BY e.version
