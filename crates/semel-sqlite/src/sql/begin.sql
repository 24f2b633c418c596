-- Takes the write lock at once. A deferred transaction that writes after it has read fails with BUSY_SNAPSHOT
-- as soon as another has committed, and no busy timeout helps it (TRAPS T16).
BEGIN IMMEDIATE
