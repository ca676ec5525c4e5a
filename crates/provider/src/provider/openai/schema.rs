//! Google's schemas, a subset of OpenAPI 3.0, as JSON schemas.
//!
//! | Google | JSON schema |
//! |---|---|
//! | `"type": "OBJECT"` | `"type": "object"` |
//! | `"nullable": true` | `"type": ["string", "null"]` |
//! | `"propertyOrdering": […]` | the properties in that order |
//! | `"minItems": "1"` | `"minItems": 1` |
//! | `"format": "enum"`, `"type": "TYPE_UNSPECIFIED"` | nothing |
//! | `"example": x` | `"examples": [x]` |
//! | `any_of`, `min_items`, … | `anyOf`, `minItems`, … |
//!
//! Everything else is the same in both, and stays as it is: a JSON schema comes out unchanged. Fields keep their
//! order, since models answer in the order of the properties.

use serde::de::Error as _;
use serde_json::value::RawValue;

use super::fields::Fields;
use crate::api::Json;

/// Deeper schemas are a mistake, and would take the stack.
const DEEPEST: usize = 100;

/// `schema` as a JSON schema.
///
/// # Errors
/// It is nested too deeply, or a field of it has another form than the fields of schemas have.
pub(super) fn json_schema(schema: &Json) -> serde_json::Result<Json> {
    let mut out = String::with_capacity(schema.get().len());
    write_schema(&mut out, schema.get(), DEEPEST)?;
    serde_json::from_str(&out)
}

fn write_schema(out: &mut String, schema: &str, depth: usize) -> serde_json::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(serde_json::Error::custom("the schema is nested too deeply"));
    };
    if !schema.starts_with('{') {
        // `true` and `false` are schemas, too.
        out.push_str(schema);
        return Ok(());
    }
    let fields = Fields::parse(schema)?;
    let nullable = fields.find("nullable").is_some_and(|value| value.get() == "true");
    let order = fields.find("propertyOrdering").or_else(|| fields.find("property_ordering"));
    let order: Vec<String> =
        order.map_or(Ok(Vec::new()), |order| serde_json::from_str(order.get()))?;

    let mut object = Object::begin(out);
    for (name, value) in fields.iter() {
        let name = camel(name);
        let value = value.get();
        match name {
            "nullable" | "propertyOrdering" => {}
            "type" => {
                if let Some(kind) = kind(value, nullable)? {
                    object.field("type").push_str(&kind);
                }
            }
            "format" if value == "\"enum\"" => {}
            "enum" if nullable => write_nullable_enum(object.field(name), value)?,
            "example" => {
                let out = object.field("examples");
                out.push('[');
                out.push_str(value);
                out.push(']');
            }
            "properties" | "$defs" => {
                let out = object.field(name);
                let mut properties = Fields::parse(value)?;
                properties.sort_by(&order);
                let mut inner = Object::begin(out);
                for (property, schema) in properties.iter() {
                    write_schema(inner.field(property), schema.get(), depth)?;
                }
                inner.end();
            }
            "items" | "additionalProperties" | "not" => {
                write_schema(object.field(name), value, depth)?;
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let schemas: Vec<&RawValue> = serde_json::from_str(value)?;
                let out = object.field(name);
                out.push('[');
                for (at, schema) in schemas.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_schema(out, schema.get(), depth)?;
                }
                if nullable && name == "anyOf" {
                    out.push_str(",{\"type\":\"null\"}");
                }
                out.push(']');
            }
            _ if COUNTS.contains(&name) => object.field(name).push_str(value.trim_matches('"')),
            _ => object.field(name).push_str(value),
        }
    }
    object.end();
    Ok(())
}

/// 64-bit numbers, which Google's JSON writes as strings.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Google's servers read snake case as well.
fn camel(name: &str) -> &str {
    match name {
        "any_of" => "anyOf",
        "property_ordering" => "propertyOrdering",
        "min_items" => "minItems",
        "max_items" => "maxItems",
        "min_length" => "minLength",
        "max_length" => "maxLength",
        "min_properties" => "minProperties",
        "max_properties" => "maxProperties",
        "additional_properties" => "additionalProperties",
        "prefix_items" => "prefixItems",
        "defs" => "$defs",
        "ref" => "$ref",
        name => name,
    }
}

/// The value of `type`. JSON schemas may have a list of them.
fn kind(value: &str, nullable: bool) -> serde_json::Result<Option<String>> {
    if !value.starts_with('"') {
        return Ok(Some(value.to_owned()));
    }
    let name: String = serde_json::from_str(value)?;
    let name = serde_json::to_string(&name.to_ascii_lowercase())?;
    Ok(match nullable {
        _ if name == "\"type_unspecified\"" => None,
        true => Some(format!("[{name},\"null\"]")),
        false => Some(name),
    })
}

fn write_nullable_enum(out: &mut String, value: &str) -> serde_json::Result<()> {
    let mut values: Vec<serde_json::Value> = serde_json::from_str(value)?;
    if !values.contains(&serde_json::Value::Null) {
        values.push(serde_json::Value::Null);
    }
    out.push_str(&serde_json::to_string(&values)?);
    Ok(())
}

/// An object that is being written.
struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    /// Begins a field, and returns where its value goes.
    fn field(&mut self, name: &str) -> &mut String {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        self.out.push_str(&serde_json::Value::from(name).to_string());
        self.out.push(':');
        self.out
    }

    fn end(self) {
        self.out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: &str) -> String {
        json_schema(&serde_json::from_str(schema).unwrap()).unwrap().get().to_owned()
    }

    #[test]
    fn googles_schema_becomes_a_json_schema_in_the_same_order() {
        assert_eq!(
            of(r#"{"type":"OBJECT","properties":{"z":{"type":"STRING","nullable":true},
                "a":{"type":"ARRAY","items":{"type":"INTEGER","format":"int32"},"minItems":"1"},
                "e":{"type":"STRING","format":"enum","enum":["x","y"]}},"required":["z"]}"#),
            r#"{"type":"object","properties":{"z":{"type":["string","null"]},"a":{"type":"array","#
                .to_owned()
                + r#""items":{"type":"integer","format":"int32"},"minItems":1},"#
                + r#""e":{"type":"string","enum":["x","y"]}},"required":["z"]}"#,
        );
    }

    #[test]
    fn an_order_that_is_stated_is_kept() {
        assert_eq!(
            of(r#"{"properties":{"a":{},"b":{},"c":{}},"propertyOrdering":["c","a"]}"#),
            r#"{"properties":{"c":{},"a":{},"b":{}}}"#
        );
    }

    #[test]
    fn what_may_be_null_may_be_null_in_every_form() {
        assert_eq!(
            of(r#"{"any_of":[{"type":"STRING"},{"type":"NUMBER"}],"nullable":true}"#),
            r#"{"anyOf":[{"type":"string"},{"type":"number"},{"type":"null"}]}"#
        );
        assert_eq!(
            of(r#"{"type":"STRING","enum":["a"],"nullable":true}"#),
            r#"{"type":["string","null"],"enum":["a",null]}"#
        );
        assert_eq!(of(r#"{"type":"STRING","nullable":false}"#), r#"{"type":"string"}"#);
    }

    #[test]
    fn a_json_schema_is_not_changed() {
        let schema = r##"{"$schema":"x","type":"object","properties":{"type":{"type":["string","null"]},"n":{"$ref":"#/$defs/n"}},"additionalProperties":false,"$defs":{"n":{"const":1.50}}}"##;
        assert_eq!(of(schema), schema);
    }

    #[test]
    fn a_property_may_be_called_like_a_field_of_schemas() {
        let schema =
            r#"{"properties":{"nullable":{"type":"BOOLEAN"},"example":{"type":"STRING"}}}"#;
        assert_eq!(
            of(schema),
            r#"{"properties":{"nullable":{"type":"boolean"},"example":{"type":"string"}}}"#
        );
    }

    #[test]
    fn a_schema_without_a_bottom_is_refused() {
        let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(5000), "}".repeat(5000));
        let deep = RawValue::from_string(deep).unwrap();
        let deep = Json::new(&deep).unwrap();
        assert!(json_schema(&deep).is_err());
    }
}
