-- Notes an operator's act. Run twice, it is noted twice. Locks nothing. Index: none.
INSERT INTO semel_act (consumer, act, who, why, detail)
VALUES ($1, $2, $3, $4, $5)
