//! Transactions: `txn [as=LEASE seq=N] [if COMPARE...] then OP... [else OP...]`, and the single steps as verbs.

use super::aliases::Aliases;
use super::parse::{request, valid};
use super::words::Words;
use tollgate_core::{Against, Compare, KeySelector, Op, RangeQuery, Relation, Sort, Txn};
use tollgate_types::{Key, Revision, Value};

/// Parses the words after the verb `put`, `get`, `delete` or `txn`.
pub(super) fn parse(verb: &str, words: &mut Words, aliases: &mut Aliases) -> Result<Txn, String> {
    let request = match words.flag("as") {
        Some(alias) => {
            let request = request(words)?.ok_or("as= goes with seq=")?;
            Some((aliases.lease(&alias)?, request))
        }
        None => None,
    };
    let mut txn = Txn { request, compares: Vec::new(), then: Vec::new(), otherwise: Vec::new() };
    if verb != "txn" {
        txn.then.push(op(verb, words, aliases)?);
        return Ok(txn);
    }
    if next_is(words, &["if"]) {
        words.next("if")?;
        while words.peek().is_some() && !next_is(words, &["then", "else"]) {
            txn.compares.push(compare(&words.next("a compare")?, aliases)?);
        }
    }
    for (keyword, branch) in [("then", &mut txn.then), ("else", &mut txn.otherwise)] {
        if next_is(words, &[keyword]) {
            words.next(keyword)?;
            while next_is(words, &["put", "get", "delete"]) {
                let verb = words.next("a step")?;
                branch.push(op(&verb, words, aliases)?);
            }
        }
    }
    Ok(txn)
}

fn next_is(words: &Words, any: &[&str]) -> bool {
    words.peek().is_some_and(|word| any.contains(&word))
}

fn op(verb: &str, words: &mut Words, aliases: &mut Aliases) -> Result<Op, String> {
    match verb {
        "put" => {
            let key = valid(Key::new(words.next("the key")?))?;
            let value = valid(Value::new(words.next("the value")?))?;
            let lease = words.next_flag("lease").map(|alias| aliases.lease(&alias)).transpose()?;
            Ok(Op::Put { key, value, lease })
        }
        "get" => range(words).map(Op::Get),
        _ => selector(words).map(Op::Delete),
    }
}

/// Parses `KEY`, `PREFIX*` or `*`, then `sort=` and `limit=`.
pub(super) fn range(words: &mut Words) -> Result<RangeQuery, String> {
    let keys = selector(words)?;
    let sort = match words.next_flag("sort").as_deref() {
        None | Some("key") => Sort::Key,
        Some("key-descending") => Sort::KeyDescending,
        Some("create") => Sort::Create,
        Some("create-descending") => Sort::CreateDescending,
        Some(other) => return Err(format!("{other} is no order")),
    };
    let limit =
        words.next_flag("limit").map_or(Ok(0), |n| n.parse().map_err(|_| format!("{n} is no number")))?;
    Ok(RangeQuery { keys, limit, sort })
}

fn selector(words: &mut Words) -> Result<KeySelector, String> {
    let text = words.next("the key")?;
    match text.strip_suffix('*') {
        Some("") => Ok(KeySelector::All),
        Some(prefix) => valid(Key::new(prefix)).map(KeySelector::Prefix),
        None => valid(Key::new(text)).map(KeySelector::Key),
    }
}

/// Parses `create(k)=0`, `mod(k)>3`, `version(k)<2`, `value(k)!=x`, `lease(k)=l1`.
fn compare(text: &str, aliases: &mut Aliases) -> Result<Compare, String> {
    let wrong = || format!("{text} is no compare: write version(key)=1");
    let (attribute, rest) = text.split_once('(').ok_or_else(wrong)?;
    let (key, rest) = rest.split_once(')').ok_or_else(wrong)?;
    let relations =
        [("!=", Relation::NotEqual), ("=", Relation::Equal), ("<", Relation::Less), (">", Relation::Greater)];
    let (relation, given) = relations
        .into_iter()
        .find_map(|(sign, relation)| rest.strip_prefix(sign).map(|given| (relation, given)))
        .ok_or_else(wrong)?;
    let number = || given.parse::<u64>().map_err(|_| wrong());
    let against = match attribute {
        "create" => Against::Create(valid(Revision::new(number()?))?),
        "mod" => Against::Mod(valid(Revision::new(number()?))?),
        "version" => Against::Version(number()?),
        "value" => Against::Value(valid(Value::new(given))?),
        "lease" if given == "none" => Against::Lease(None),
        "lease" => Against::Lease(Some(aliases.lease(given)?)),
        _ => return Err(wrong()),
    };
    Ok(Compare { key: valid(Key::new(key))?, relation, against })
}
