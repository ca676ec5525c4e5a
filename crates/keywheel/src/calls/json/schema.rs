//! The JSON schema of a type, reduced to what Gemini understands.

use keywheel_provider::api::Json;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a schema may say; anything else is refused, or not heeded, by the documentation of `responseJsonSchema`
/// (<https://ai.google.dev/api/generate-content#GenerationConfig>).
const UNDERSTOOD: [&str; 18] = [
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
];

/// Formats that mean something to the model; those of Rust's own integers do not.
const FORMATS: [&str; 7] = ["date-time", "date", "time", "int32", "int64", "float", "double"];

/// The schema of `T`. `ordered`: with Google's own `propertyOrdering`, since maps have no order.
pub(super) fn of<T: JsonSchema>(ordered: bool) -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    reduce(&mut schema, ordered);
    schema.into()
}

fn reduce(schema: &mut Value, ordered: bool) {
    let Value::Object(fields) = schema else {
        // `true`: anything.
        *schema = json!({});
        return;
    };
    if let Some(Value::Array(parts)) = fields.remove("allOf") {
        parts.into_iter().for_each(|part| merge(fields, part));
    }
    if let Some(one) = fields.remove("oneOf") {
        fields.insert("anyOf".to_owned(), one);
    }
    if let Some(value) = fields.remove("const")
        && (value.is_string() || value.is_number())
    {
        fields.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Object(patterns)) = fields.remove("patternProperties") {
        // A map of numbers: Gemini knows no patterns, and without them there would be room for nothing.
        let mut entries: Vec<_> = patterns.into_iter().map(|(_, schema)| schema).collect();
        let entry = if entries.len() == 1 { entries.remove(0) } else { json!({"anyOf": entries}) };
        fields.insert("additionalProperties".to_owned(), entry);
    }
    if ordered {
        choose_or_nothing(fields);
    }
    let is_ref = fields.contains_key("$ref");
    fields.retain(|name, value| match name.as_str() {
        name if is_ref => name.starts_with('$'),
        "required" => true,
        "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format)),
        name => UNDERSTOOD.contains(&name),
    });
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(|schema| reduce(schema, ordered));
            }
            ("anyOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| reduce(schema, ordered));
            }
            ("items", value) => reduce(value, ordered),
            ("additionalProperties", value) if value.is_object() => reduce(value, ordered),
            _ => {}
        }
    }
    if ordered && let Some(order) = order(fields) {
        fields.insert("propertyOrdering".to_owned(), order);
    }
    if ordered {
        require_no_reference(fields);
    }
}

/// Lists `null` beside the strings of an `enum`, which may hold strings and numbers only.
fn choose_or_nothing(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get_mut("enum") else { return };
    let before = choices.len();
    choices.retain(|choice| !choice.is_null());
    if choices.len() == before || choices.is_empty() || fields.contains_key("anyOf") {
        return;
    }
    let mut choice = Map::new();
    choice.extend(fields.remove_entry("enum"));
    if let Some(Value::Array(types)) = fields.remove("type") {
        let mut types: Vec<_> = types.into_iter().filter(|of| of != "null").collect();
        let of = if types.len() == 1 { types.remove(0) } else { Value::Array(types) };
        choice.insert("type".to_owned(), of);
    }
    fields.insert("anyOf".to_owned(), json!([choice, {"type": "null"}]));
}

/// A `$ref` may be in properties only that are not required, says the documentation of `responseJsonSchema`.
fn require_no_reference(fields: &mut Map<String, Value>) {
    let Some(Value::Array(mut required)) = fields.remove("required") else { return };
    let properties = fields.get("properties");
    let refers_to = |name: &str| properties.and_then(|all| all.get(name)).is_some_and(refers);
    required.retain(|name| !name.as_str().is_some_and(refers_to));
    if !required.is_empty() {
        fields.insert("required".to_owned(), Value::Array(required));
    }
}

fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("$ref") || fields.values().any(refers),
        Value::Array(schemas) => schemas.iter().any(refers),
        _ => false,
    }
}

/// Required properties as they are declared, then the others by name.
fn order(fields: &Map<String, Value>) -> Option<Value> {
    let Some(Value::Object(properties)) = fields.get("properties") else { return None };
    let required = fields.get("required").and_then(Value::as_array);
    let mut order: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|name| properties.contains_key(*name))
        .collect();
    for name in properties.keys() {
        if !order.contains(&name.as_str()) {
            order.push(name);
        }
    }
    (order.len() > 1).then(|| json!(order))
}

/// Adds what `part` says to `fields`: properties and required ones to those that are there.
fn merge(fields: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (name, value) in part {
        match (fields.get_mut(&name), value) {
            (Some(Value::Object(here)), Value::Object(more)) => here.extend(more),
            (Some(Value::Array(here)), Value::Array(more)) => here.extend(more),
            (Some(_), _) => {}
            (None, value) => drop(fields.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "types of which only the schema is wanted")]

    use std::collections::BTreeMap;

    use super::*;

    #[derive(JsonSchema)]
    struct Meal {
        zutaten: Vec<Ingredient>,
        /// Who likes it.
        guests: u8,
        note: Option<String>,
        kind: Kind,
        extra: BTreeMap<String, f64>,
    }

    #[derive(JsonSchema)]
    struct Ingredient {
        #[schemars(length(min = 1), regex(pattern = "^[a-z]+$"))]
        name: String,
    }

    #[derive(JsonSchema)]
    enum Kind {
        /// In the morning.
        Breakfast,
        Supper,
    }

    #[derive(JsonSchema)]
    struct Tree {
        children: Option<Vec<Self>>,
        value: i64,
    }

    fn schema<T: JsonSchema>() -> Value {
        of::<T>(true).parse().unwrap()
    }

    #[test]
    fn a_type_becomes_a_schema_of_what_gemini_understands() {
        assert_eq!(
            schema::<Meal>(),
            json!({
                "title": "Meal",
                "type": "object",
                "properties": {
                    "zutaten": {"type": "array", "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    }},
                    "guests": {
                        "description": "Who likes it.", "type": "integer", "minimum": 0, "maximum": 255,
                    },
                    "note": {"type": ["string", "null"]},
                    "kind": {"anyOf": [
                        {"type": "string", "enum": ["Supper"]},
                        {"description": "In the morning.", "type": "string", "enum": ["Breakfast"]},
                    ]},
                    "extra": {"type": "object", "additionalProperties": {"type": "number", "format": "double"}},
                },
                "required": ["zutaten", "guests", "kind", "extra"],
                "propertyOrdering": ["zutaten", "guests", "kind", "extra", "note"],
            })
        );
    }

    #[test]
    fn a_type_that_holds_itself_refers_to_itself() {
        let schema = schema::<Tree>();
        let text = schema.to_string();
        assert!(text.contains("\"$ref\""), "{text}");
        assert_eq!(schema["properties"]["value"]["type"], "integer");
    }

    #[test]
    fn what_refers_to_itself_is_not_required() {
        #[derive(JsonSchema)]
        struct Branch {
            name: String,
            branches: Vec<Self>,
        }
        assert_eq!(schema::<Branch>()["required"], json!(["name"]));
        assert_eq!(schema::<Branch>()["propertyOrdering"], json!(["name", "branches"]));
        let of_others: Value = of::<Branch>(false).parse().unwrap();
        assert_eq!(of_others["required"], json!(["name", "branches"]));
    }

    #[test]
    fn a_map_of_numbers_has_room_for_entries() {
        let map = schema::<BTreeMap<u32, f64>>();
        assert_eq!(map["additionalProperties"], json!({"type": "number", "format": "double"}));
    }

    #[test]
    fn a_choice_that_may_be_absent_lists_strings_only() {
        #[derive(JsonSchema)]
        enum Size {
            Small,
            Large,
        }
        let of_strings = json!({"type": "string", "enum": ["Small", "Large"]});
        assert_eq!(schema::<Option<Size>>()["anyOf"], json!([of_strings, {"type": "null"}]));
        assert!(schema::<Option<Size>>().get("enum").is_none());
    }

    #[test]
    fn others_than_google_get_no_field_of_its_own() {
        let text = of::<Meal>(false).get().to_owned();
        assert!(!text.contains("propertyOrdering"), "{text}");
    }
}
