//! The smallest value that a schema allows.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// How deep a value goes: what lies deeper is left out where it may be, and empty where not.
const DEPTH: usize = 12;
/// About how many characters there are in all: lists within lists, and schemas that hold themselves twice, multiply.
const MOST_CHARS: usize = 1 << 20;
/// What a value counts as besides its text.
const VALUE_CHARS: usize = 16;

/// A small value of `schema`, which may be JSON Schema or Google's subset of OpenAPI.
///
/// Objects have their required properties, or all when none is required; lists have as few items as they
/// may, but one where that is allowed. The first of several choices is taken. A schema that makes no sense
/// gives `null`.
pub(crate) fn instance(schema: &Value) -> Value {
    Reader { root: schema, left: Cell::new(MOST_CHARS) }.value(schema, "value", DEPTH)
}

struct Reader<'a> {
    /// What `$ref`s are looked up in.
    root: &'a Value,
    /// How many more characters there may be.
    left: Cell<usize>,
}

impl<'a> Reader<'a> {
    fn value(&self, schema: &'a Value, name: &str, depth: usize) -> Value {
        if depth == 0 || self.left.get() == 0 {
            return Value::Null;
        }
        self.take(VALUE_CHARS);
        if let Some(target) = schema["$ref"].as_str() {
            return self.at(target).map_or(Value::Null, |it| self.value(it, name, depth - 1));
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
            return first.clone();
        }
        for choice in ["anyOf", "any_of", "oneOf", "allOf"] {
            let choices = schema[choice].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(first) = choices.iter().find(|it| !is_null(it)).or_else(|| choices.first())
            {
                return self.value(first, name, depth - 1);
            }
        }
        match self.kind(schema).as_str() {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, name, depth),
            "string" => {
                let said = string(schema, name);
                self.take(said.len());
                said.into()
            }
            "integer" => json!(at_least(schema, 1.0).ceil() as i64),
            "number" => json!(at_least(schema, 0.5)),
            "boolean" => json!(true),
            _ => Value::Null,
        }
    }

    fn take(&self, chars: usize) {
        self.left.set(self.left.get().saturating_sub(chars));
    }

    /// The type in small letters; the first that is not null when there are several.
    fn kind(&self, schema: &Value) -> String {
        let named = match &schema["type"] {
            Value::Array(types) => {
                types.iter().filter_map(Value::as_str).find(|kind| *kind != "null")
            }
            one => one.as_str(),
        };
        let inferred = || {
            if schema.get("properties").is_some() {
                "object"
            } else if schema.get("items").is_some() {
                "array"
            } else {
                "null"
            }
        };
        named.unwrap_or_else(inferred).to_ascii_lowercase()
    }

    fn object(&self, schema: &'a Value, depth: usize) -> Value {
        let Some(properties) = schema["properties"].as_object() else { return json!({}) };
        let required = schema["required"].as_array();
        let wanted = |name: &str| {
            required.is_none_or(|names| names.iter().any(|it| it.as_str() == Some(name)))
        };
        let mut out = Map::new();
        for (name, property) in properties.iter().filter(|(name, _)| wanted(name)) {
            let value = self.value(property, name, depth - 1);
            // A schema that holds itself ends here, unless it insists.
            if !value.is_null() || required.is_some() {
                out.insert(name.clone(), value);
            }
        }
        out.into()
    }

    fn array(&self, schema: &'a Value, name: &str, depth: usize) -> Value {
        if let Some(fixed) = schema["prefixItems"].as_array() {
            return fixed.iter().map(|item| self.value(item, name, depth - 1)).collect();
        }
        let bound = |name: &str| match &schema[name] {
            Value::String(digits) => digits.parse().ok(),
            number => number.as_u64(),
        };
        let most = bound("maxItems").unwrap_or(u64::MAX);
        let count = bound("minItems").unwrap_or(0).max(1).min(most).min(1_000);
        let Some(item) = schema.get("items") else { return json!([]) };
        (0..count)
            .map(|_| self.value(item, name, depth - 1))
            .filter(|value| !value.is_null())
            .collect()
    }

    /// `#/$defs/Thing`.
    fn at(&self, target: &str) -> Option<&'a Value> {
        self.root.pointer(target.strip_prefix('#')?)
    }
}

fn is_null(schema: &Value) -> bool {
    schema["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("null"))
}

fn at_least(schema: &Value, usual: f64) -> f64 {
    let bound = |name: &str| schema[name].as_f64();
    let least = bound("minimum").or_else(|| Some(bound("exclusiveMinimum")? + 1.0));
    let most = bound("maximum").or_else(|| Some(bound("exclusiveMaximum")? - 1.0));
    let value = least.map_or(usual, |least| least.max(usual));
    most.map_or(value, |most| value.min(most))
}

fn string(schema: &Value, name: &str) -> String {
    let said = match schema["format"].as_str() {
        Some("date-time") => "2026-11-30T07:00:00Z".to_owned(),
        Some("date") => "2026-11-30".to_owned(),
        Some("time") => "07:00:00".to_owned(),
        Some("duration") => "PT1S".to_owned(),
        Some("uuid") => "00000000-0000-4000-8000-000000000000".to_owned(),
        Some("email") => "someone@example.com".to_owned(),
        Some("uri") => "https://example.com/".to_owned(),
        _ => format!("simulated {name}"),
    };
    let bound = |name: &str| match &schema[name] {
        Value::String(digits) => digits.parse().ok(),
        number => number.as_u64(),
    };
    let least = bound("minLength").unwrap_or(0).min(10_000) as usize;
    let most = bound("maxLength").map_or(usize::MAX, |most| most as usize);
    let mut said: String = said.chars().take(most).collect();
    let missing = least.saturating_sub(said.chars().count());
    said.extend(std::iter::repeat_n('.', missing));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_types_and_the_required_properties() {
        let schema = json!({
            "type": "OBJECT",
            "properties": {
                "name": {"type": "STRING", "minLength": "20"},
                "kind": {"type": "STRING", "enum": ["b", "a"]},
                "age": {"type": "INTEGER", "minimum": 18},
                "share": {"type": "NUMBER", "maximum": 0.25},
                "tags": {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": 2},
                "at": {"type": "STRING", "format": "date-time"},
                "extra": {"type": "STRING"},
            },
            "required": ["name", "kind", "age", "share", "tags", "at"],
        });
        let expected = json!({
            "name": "simulated name......",
            "kind": "b",
            "age": 18,
            "share": 0.25,
            "tags": ["simulated tags", "simulated tags"],
            "at": "2026-11-30T07:00:00Z",
        });
        assert_eq!(instance(&schema), expected);
    }

    #[test]
    fn references_choices_and_nulls_are_followed() {
        let schema = json!({
            "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "type": "object",
            "properties": {
                "point": {"$ref": "#/$defs/Point"},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
                "either": {"type": ["null", "number"]},
                "fixed": {"const": 7},
                "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "b"}]},
            },
            "required": ["point", "maybe", "either", "fixed", "pair"],
        });
        let expected = json!({
            "point": {"x": 1}, "maybe": true, "either": 0.5, "fixed": 7, "pair": [1, "b"],
        });
        assert_eq!(instance(&schema), expected);
    }

    #[test]
    fn a_schema_that_holds_itself_ends_and_nonsense_is_null() {
        let tree = json!({
            "$defs": {"Node": {"type": "object", "properties": {
                "label": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            }}},
            "$ref": "#/$defs/Node",
        });
        assert_eq!(instance(&tree)["label"], "simulated label");
        assert_eq!(instance(&json!({"$ref": "#/$defs/Nothing"})), Value::Null);
        assert_eq!(instance(&json!({"type": "wild"})), Value::Null);
        assert_eq!(instance(&json!(7)), Value::Null);
    }

    #[test]
    fn schemas_that_multiply_make_no_value_without_end() {
        let mut lists = json!({"type": "INTEGER"});
        for _ in 0..8 {
            lists = json!({"type": "ARRAY", "minItems": 1_000, "items": lists});
        }
        let names: Vec<_> = (0..30).map(|name| name.to_string()).collect();
        let child = json!({"$ref": "#"});
        let properties: Map<_, _> =
            names.iter().map(|name| (name.clone(), child.clone())).collect();
        let doubles = json!({"type": "OBJECT", "properties": properties, "required": names});
        let text = json!({"type": "STRING", "minLength": 10_000});
        let list = json!({"type": "ARRAY", "minItems": 1_000, "items": text});
        let texts = json!({"type": "ARRAY", "minItems": 1_000, "items": list});
        for schema in [lists, doubles, texts] {
            assert!(instance(&schema).to_string().len() < 4 << 20);
        }
    }
}
